#include "../memory.h"

enum { COUNT = 3 * 1000 * 1000 };

/* HDF5 has allocated it, but the file ends before it until the file is closed. */
int main(void) {
    begin();
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), file = create_file("file.h5");
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t dataset = create_dataset(file, "x", COUNT, dcpl);
    int *first = values(1000, 1);
    const hsize_t start = 0, count = 1000;
    hid_t some = H5Dget_space(dataset), in_memory = H5Screate_simple(1, &count, NULL);
    OK(H5Sselect_hyperslab(some, H5S_SELECT_SET, &start, NULL, &count, NULL));
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, in_memory, some, H5P_DEFAULT, first));

    int *expected = calloc(COUNT, sizeof(int)), *garbage = values(COUNT, 9);
    memcpy(expected, first, 1000 * sizeof(int));
    void *memory = new_memory_with(garbage, COUNT * sizeof(int));
    OK(read_whole(dataset, memory));
    CHECK(memory_holds(memory, expected, COUNT * sizeof(int)));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(memory);
    free(garbage);
    free(expected);
    free(first);
    return 0;
}
