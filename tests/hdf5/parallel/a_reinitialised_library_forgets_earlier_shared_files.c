#include "ranks.h"

static unsigned long number_of(hid_t file) {
    H5O_info2_t info;
    OK(H5Oget_info3(file, &info, H5O_INFO_BASIC));
    return info.fileno;
}

static hid_t write_x(hid_t file, const int *from, hid_t events) {
    hid_t list = transfer_list(false), dataset = create_parts(file, "x", H5P_DEFAULT);
    write_part(dataset, from, list, events);
    OK(H5Pclose(list));
    return dataset;
}

/* A plain write has failed when the program flushes the file, and another write is pending. */
static void flush_and_fail(hid_t file, const int *from) {
    hid_t events = new_events(), list = transfer_list(false), flushes = new_events();
    hid_t failing = create_parts(file, "failing", H5P_DEFAULT);
    fail_at((off_t)H5Dget_offset(failing) + rank * EACH * (off_t)sizeof(int) + EACH, ENOSPC);
    write_part(failing, from, list, H5ES_NONE);
    usleep(300000);
    fail_no_more();
    hold_bytes();
    hid_t dataset = write_x(file, from, events);
    wait_for_held_bytes();
    bool fails = H5Fflush_async(file, H5F_SCOPE_GLOBAL, flushes) < 0;
    release_held();
    size_t left;
    hbool_t failed;
    OK(H5ESwait(flushes, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(fails || failed);
    OK(H5ESclose(flushes));
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Dclose(failing));
    OK(H5Pclose(list));
}

int main(int count, char **words) {
    begin_ranks_with("implicit=1", count, words);
    /* HDF5 alone writes in the call. */
    if (is_alone()) return end_ranks();
    int *before_it = values(EACH, seed_of(rank, 1)), *after_it = values(EACH, seed_of(rank, 2));
    hid_t file = create_shared("a.h5");
    const unsigned long before = number_of(file);
    flush_and_fail(file, before_it);
    OK(H5Fclose(file));

    /* HDF5 restarts its file numbers, and another file gets this number. */
    OK(H5close());
    begin();
    file = create_shared("b.h5");
    CHECK(number_of(file) == before);
    hid_t events = new_events(), dataset = write_x(file, after_it, events);
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    check_parts("a.h5", "x", 1);
    check_parts("b.h5", "x", 2);
    free(before_it);
    free(after_it);
    return end_ranks();
}
