#include "../memory.h"

enum { COUNT = 10007 };

/* Some elements around `first` of a dataset of `total`, that HDF5 allocates and that stay unwritten. */
static void check_around(hsize_t total, hsize_t first) {
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), file = create_file("file.h5");
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t dataset = create_dataset(file, "x", total, dcpl);
    const hsize_t count = COUNT;
    hid_t space = H5Dget_space(dataset), in_memory = H5Screate_simple(1, &count, NULL);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, NULL, &count, NULL));
    int *these = values(COUNT, 4);
    void *memory = new_memory_with(these, COUNT * sizeof(int));
    void *found = new_memory(COUNT * sizeof(int));
    if (H5Dwrite(dataset, H5T_NATIVE_INT, in_memory, space, H5P_DEFAULT, memory) < 0) {
        /* Where HDF5's own driver fails, too: the file system has no such offsets. */
        CHECK_ERROR_SAYS("errno = 27");
        skip("the file system's largest file is smaller than that");
    }
    OK(H5Dread(dataset, H5T_NATIVE_INT, in_memory, space, H5P_DEFAULT, found));
    CHECK(memory_has_values(found, COUNT, 4));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));

    file = open_by_sec2("file.h5", H5F_ACC_RDONLY);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    int *by_sec2 = allocate(COUNT * sizeof(int));
    OK(H5Dread(dataset, H5T_NATIVE_INT, in_memory, space, H5P_DEFAULT, by_sec2));
    CHECK(memcmp(by_sec2, these, COUNT * sizeof(int)) == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(unlink("file.h5") == 0);
    free(by_sec2);
    free_memory(found);
    free_memory(memory);
    free(these);
}

int main(void) {
    begin();
    const hsize_t gibi = (hsize_t)1 << 28; /* elements of four bytes */
    check_around(5 * gibi, 4 * gibi - COUNT / 2);
    check_around(9 * 1024 * gibi, 8 * 1024 * gibi - COUNT / 2);
    return 0;
}
