#include "../memory.h"

/* Of raw data in one piece, which the engine copies, and of chunks, which HDF5 makes the driver
 * copy from and to its cache. */
static void check(size_t count, hid_t dcpl) {
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", count, dcpl);
    int *these = values(count, 1);
    void *memory = device_memory(count * sizeof(int));
    OK(write_whole(dataset, these));
    copy_memory(memory, these, count * sizeof(int));
    CHECK(setenv("CUDASIM_FAIL", "copy:*", 1) == 0);
    CHECK(read_whole(dataset, memory) < 0);
    CHECK_ERROR_SAYS("CUDA_ERROR");
    CHECK(write_whole(dataset, memory) < 0);
    CHECK_ERROR_SAYS("CUDA_ERROR");
    CHECK(unsetenv("CUDASIM_FAIL") == 0);
    OK(write_whole(dataset, memory));
    OK(read_whole(dataset, memory));
    CHECK(memory_has_values(memory, count, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", count, 1));
    free_device_memory(memory);
    free(these);
}

int main(void) {
    begin();
    need_standin();
    const hsize_t chunk = 5000;
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(dcpl, 1, &chunk));
    check(1000, H5P_DEFAULT);
    check(5000000, H5P_DEFAULT);
    check(20000, dcpl);
    OK(H5Pclose(dcpl));
    return 0;
}
