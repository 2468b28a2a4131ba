#include "../faults.h"

/* A small one by one call, and a large one by many workers. */
static void check(size_t count) {
    hid_t file = create_file("file.h5"), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t dataset = create_dataset(file, "x", count, dcpl);
    int *these = values(count, 1);
    void *memory = new_memory_with(these, count * sizeof(int));
    fail_at((off_t)(H5Dget_offset(dataset) + count * sizeof(int) / 2), ENOSPC);
    CHECK(write_whole(dataset, memory) < 0);
    CHECK_ERROR_SAYS("errno = 28");
    CHECK_ERROR_SAYS("file.h5");
    fail_no_more();
    OK(write_whole(dataset, memory));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", count, 1));
    OK(H5Pclose(dcpl));
    free_memory(memory);
    free(these);
}

int main(void) {
    CHECK(setenv("HDF5_DRIVER_CONFIG", "route=staged;block=1MiB", 1) == 0);
    begin();
    check(1000);
    check(5000000);
    return 0;
}
