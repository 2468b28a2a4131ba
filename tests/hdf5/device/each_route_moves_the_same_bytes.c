#include "../memory.h"

#include <penstock_hdf5.h>

enum { COUNT = 1500001, STRIDE = 5 };

static void check(const char *options) {
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    CHECK(penstock_fapl_set(fapl, options) == PENSTOCK_OK);
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    put_values(file, "shift", 3, 0);
    hid_t dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    int *these = values(COUNT, 1), *expected = values(COUNT, 2);
    void *memory = device_memory(COUNT * sizeof(int));
    copy_memory(memory, these, COUNT * sizeof(int));
    OK(write_whole(dataset, memory));
    copy_memory(memory, expected, COUNT * sizeof(int));
    /* Every fifth of a thousand elements, then all. */
    const hsize_t start = 700001, stride = STRIDE, many = 1000;
    hid_t some = H5Dget_space(dataset);
    OK(H5Sselect_hyperslab(some, H5S_SELECT_SET, &start, &stride, &many, NULL));
    OK(H5Dread(dataset, H5T_NATIVE_INT, some, some, H5P_DEFAULT, memory));
    for (size_t i = 0; i < many; i++) expected[start + i * STRIDE] = these[start + i * STRIDE];
    CHECK(memory_holds(memory, expected, COUNT * sizeof(int)));
    OK(read_whole(dataset, memory));
    CHECK(memory_holds(memory, these, COUNT * sizeof(int)));
    OK(H5Sclose(some));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", COUNT, 1));
    free_device_memory(memory);
    free(expected);
    free(these);
    OK(H5Pclose(fapl));
}

int main(void) {
    begin();
    need_device();
    check("route=staged;direct=no;block=256KiB;threads=1");
    check("route=staged;direct=yes;block=1MiB;threads=4");
    check("route=staged;io=uring;queue_depth=4");
    check("route=mapped");
    check("route=auto;durable=yes");
    const char *name = getenv("PENSTOCK_CUDA_LIBRARY");
    if (name != NULL && strstr(name, "standin") != NULL) check("route=gds;block=1MiB");
    return 0;
}
