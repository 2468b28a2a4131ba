#include "../faults.h"

/* A small one by one call, and a large one by many workers. */
static void check(size_t count) {
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", count, H5P_DEFAULT);
    int *these = values(count, 1);
    OK(write_whole(dataset, these));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    void *memory = new_memory(count * sizeof(int));
    fail_at((off_t)(H5Dget_offset(dataset) + count * sizeof(int) / 2), EIO);
    CHECK(read_whole(dataset, memory) < 0);
    CHECK_ERROR_SAYS("errno = 5");
    CHECK_ERROR_SAYS("file.h5");
    fail_no_more();
    OK(read_whole(dataset, memory));
    CHECK(memory_has_values(memory, count, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
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
