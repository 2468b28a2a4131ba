#include "../memory.h"

enum { COUNT = 100000, POINTS = 200, APART = 400 };

/* Each is selected twice, far from itself and with other values. */
int main(void) {
    begin();
    hid_t file = create_file("file.h5");
    hid_t dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT), space = H5Dget_space(dataset);
    OK(space);
    int *before = values(COUNT, 1), *these = values(2 * POINTS, 2);
    OK(write_whole(dataset, before));
    hsize_t points[2 * POINTS];
    for (size_t i = 0; i < 2 * POINTS; i++) points[i] = i % POINTS * APART;
    OK(H5Sselect_elements(space, H5S_SELECT_SET, 2 * POINTS, points));
    const hsize_t count = 2 * POINTS;
    hid_t dense = H5Screate_simple(1, &count, NULL);
    OK(dense);
    void *memory = new_memory_with(these, 2 * POINTS * sizeof *these);
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, dense, space, H5P_DEFAULT, memory));
    free_memory(memory);
    OK(H5Sclose(dense));
    OK(H5Sclose(space));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));

    for (size_t i = 0; i < POINTS; i++) before[i * APART] = these[POINTS + i];
    file = open_by_sec2("file.h5", H5F_ACC_RDONLY);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(dataset);
    int *found = allocate(COUNT * sizeof *found);
    OK(read_whole(dataset, found));
    CHECK(memcmp(found, before, COUNT * sizeof *found) == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(found);
    free(these);
    free(before);
    return 0;
}
