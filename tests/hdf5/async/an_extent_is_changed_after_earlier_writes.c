#include "events.h"

/* What is cut off is cut off, and what comes back holds the fill value. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events(), dcpl = chunked(10000);
    const int fill = -1;
    OK(H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill));
    hsize_t count = MANY;
    const hsize_t most = H5S_UNLIMITED, half = MANY / 2;
    hid_t space = H5Screate_simple(1, &count, &most);
    hid_t dataset =
        H5Dcreate2(file, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    int *these = values(MANY, 1);
    void *memory = new_memory_with(these, MANY * sizeof(int));
    OK(write_later(dataset, memory, events));
    OK(H5Dset_extent_async(dataset, &half, events));
    OK(H5Dset_extent_async(dataset, &count, events));
    void *again = new_memory(MANY * sizeof(int));
    OK(read_later(dataset, again, events));
    finish_all(events);
    for (size_t i = half; i < count; i++) these[i] = fill;
    CHECK(memory_holds(again, these, MANY * sizeof(int)));

    OK(write_later(dataset, memory, events));
    OK(H5Dset_extent(dataset, &half));
    hid_t smaller = H5Dget_space(dataset);
    CHECK(H5Sget_simple_extent_npoints(smaller) == (hssize_t)half);
    close_events(events);
    OK(H5Sclose(smaller));
    OK(H5Sclose(space));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "x", half, 1));
    OK(H5Pclose(dcpl));
    free_memory(memory);
    free_memory(again);
    free(these);
    return 0;
}
