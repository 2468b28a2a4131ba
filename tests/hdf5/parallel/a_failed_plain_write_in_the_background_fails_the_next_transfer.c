#include "ranks.h"

/* The write of the first rank fails, after it has returned. */
static void write_and_fail(hid_t dataset, const int *from, hid_t list) {
    if (rank == 0) fail_at((off_t)H5Dget_offset(dataset) + EACH, ENOSPC);
    hold_bytes();
    write_part(dataset, from, list, H5ES_NONE);
    wait_for_held_bytes();
    release_held();
}

static void reports_failure(herr_t status) {
    CHECK((status < 0) == (rank == 0));
    if (rank == 0) CHECK_ERROR_SAYS("No space left on device");
    fail_no_more();
}

/* The ranks may carry out the next transfer together, and none waits for one that fails. */
static void check(hid_t dataset, bool is_collective, const char *what) {
    hid_t alone = transfer_list(false), list = transfer_list(is_collective);
    int *mine = values(EACH, seed_of(rank, 1)), *found = allocate(EACH * sizeof *found);
    selection at = select_from(dataset, (hsize_t)rank * EACH, EACH);
    hid_t events = new_events();
    write_and_fail(dataset, mine, alone);
    barrier();
    if (strcmp(what, "read") == 0) {
        reports_failure(H5Dread(dataset, H5T_NATIVE_INT, at.memory, at.file, list, found));
    } else if (strcmp(what, "read with an event set") == 0) {
        reports_failure(H5Dread_async(dataset, H5T_NATIVE_INT, at.memory, at.file, list, found, events));
    } else {
        /* It does not wait for the one before, which has ended by then. */
        if (rank == 0) usleep(300000);
        fail_no_more();
        reports_failure(H5Dwrite(dataset, H5T_NATIVE_INT, at.memory, at.file, list, mine));
    }
    close_events(events);
    /* Once. */
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, at.memory, at.file, list, mine));
    OK(H5Dread(dataset, H5T_NATIVE_INT, at.memory, at.file, list, found));
    CHECK(memcmp(found, mine, EACH * sizeof *found) == 0);
    close_selection(at);
    OK(H5Pclose(list));
    OK(H5Pclose(alone));
    free(mine);
    free(found);
}

static void check_all(const char *path) {
    hid_t file = create_shared(path);
    hid_t dataset = create_parts(file, "x", H5P_DEFAULT);
    for (int is_collective = 0; is_collective < 2; is_collective++) {
        check(dataset, is_collective, "read");
        check(dataset, is_collective, "read with an event set");
        check(dataset, is_collective, "write");
    }
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    check_parts(path, "x", 1);
}

int main(int count, char **words) {
    begin_ranks_with("implicit=1", count, words);
    /* HDF5 alone writes in the call. */
    if (is_alone()) return end_ranks();
    check_all("engine.h5");
    /* HDF5 looks at the variable when it is opened. */
    OK(H5close());
    add_options("collective=hdf5");
    begin();
    check_all("hdf5.h5");
    return end_ranks();
}
