#include "events.h"

enum { SOME = 100 };

/* Storage that is there, and a file that keeps nothing in a buffer. */
static hid_t dataset_of(hid_t file, const char *name) {
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t dataset = create_dataset(file, name, SOME, dcpl);
    OK(H5Pclose(dcpl));
    return dataset;
}

/* As for every call that is complete when it returns, the event set has nothing of it. */
int main(void) {
    begin();
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), events = new_events();
    OK(H5Pset_sieve_buf_size(fapl, 0));
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    OK(H5Pclose(fapl));
    hid_t dataset = dataset_of(file, "x");
    int *these = values(SOME, 1), *found = allocate(SOME * sizeof(int));
    OK(write_later(dataset, these, events));
    finish_all(events);

    fail_at((off_t)H5Dget_offset(dataset), ENOSPC);
    CHECK(write_later(dataset, these, events) < 0);
    CHECK_ERROR_SAYS("No space left on device");
    CHECK(count_of(events) == 0);
    finish_all(events);

    fail_at((off_t)H5Dget_offset(dataset), EIO);
    CHECK(read_later(dataset, found, events) < 0);
    CHECK_ERROR_SAYS("Input/output error");
    finish_all(events);

    fail_no_more();
    OK(write_later(dataset, these, events));
    OK(read_later(dataset, found, events));
    close_events(events);
    CHECK(memcmp(found, these, SOME * sizeof(int)) == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "x", SOME, 1));
    free(these);
    free(found);
    return 0;
}
