#include "events.h"

static hid_t fails(hid_t file, const char *name, const void *from) {
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t dataset = create_dataset(file, name, MANY, dcpl);
    OK(H5Pclose(dcpl));
    fail_at((off_t)(H5Dget_offset(dataset) + MANY * sizeof(int) / 2), ENOSPC);
    OK(write_whole(dataset, from));
    return dataset;
}

/* A flush, close, read or write reports it, once. */
int main(void) {
    begin_with("implicit=1");
    hid_t file = make_file("file.h5");
    int *these = values(MANY, 1);

    hid_t flushed = fails(file, "flushed", these);
    CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) < 0);
    CHECK_ERROR_SAYS("No space left on device");
    fail_no_more();
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));

    hid_t is_read = fails(file, "read", these);
    int *found = allocate(MANY * sizeof(int));
    CHECK(read_whole(is_read, found) < 0);
    CHECK_ERROR_SAYS("No space left on device");
    fail_no_more();
    OK(write_whole(is_read, these));
    OK(read_whole(is_read, found));
    CHECK(memcmp(found, these, MANY * sizeof(int)) == 0);
    OK(H5Dclose(is_read));

    hid_t written = fails(file, "written", these);
    /* A write does not wait for the one before, which has ended by then. */
    usleep(300000);
    fail_no_more();
    CHECK(write_whole(flushed, these) < 0);
    CHECK_ERROR_SAYS("No space left on device");
    OK(write_whole(flushed, these));
    OK(H5Dclose(written));
    OK(H5Dclose(flushed));

    hid_t closed = fails(file, "closed", these);
    bool was_told = H5Dclose(closed) < 0;
    was_told |= H5Fclose(file) < 0;
    CHECK(was_told);
    fail_no_more();
    free(these);
    free(found);
    return 0;
}
