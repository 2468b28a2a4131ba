#include "ranks.h"

/* The write of the first rank fails, after it has returned. */
static void write_and_fail(hid_t dataset) {
    int *mine = values(EACH, seed_of(rank, 1));
    hid_t list = transfer_list(false);
    if (rank == 0) fail_at((off_t)H5Dget_offset(dataset) + EACH, ENOSPC);
    hold_bytes();
    write_part(dataset, mine, list, H5ES_NONE);
    wait_for_held_bytes();
    OK(H5Pclose(list));
    free(mine);
}

static void reports_failure(hid_t events, const char *call) {
    CHECK_UNDER_WAY(events, 1);
    release_held();
    if (rank == 0)
        CHECK_SAYS(failure_of(events, call), "No space left on device");
    else
        finish_all(events);
    OK(H5ESclose(events));
    fail_no_more();
}

int main(int count, char **words) {
    begin_ranks_with("implicit=1", count, words);
    /* HDF5 alone writes in the call. */
    if (is_alone()) return end_ranks();
    hid_t file = create_shared("x.h5"), events = new_events();
    hid_t dataset = create_parts(file, "x", H5P_DEFAULT);
    write_and_fail(dataset);
    OK(H5Fflush_async(file, H5F_SCOPE_GLOBAL, events));
    reports_failure(events, "H5Fflush_async");
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));

    write_and_fail(dataset);
    OK(H5Dclose(dataset));
    events = new_events();
    OK(H5Fclose_async(file, events));
    reports_failure(events, "H5Fclose_async");
    return end_ranks();
}
