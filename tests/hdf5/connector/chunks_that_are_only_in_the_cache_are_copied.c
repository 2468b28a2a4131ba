/* HDF5 caches chunks that are read and not stored, and copies wrong elements for them (1.14.4) or fails (2.2.0).
 * The copy has the fill value there. */
#include "objects.h"

enum { ROWS = 29, BEFORE = 26, AFTER = 52, FILL = 99 };

int main(void) {
    begin();
    const hsize_t shape[] = {ROWS, BEFORE}, most[] = {ROWS, H5S_UNLIMITED}, chunk[] = {14, 13}, larger[] = {ROWS, AFTER};
    const int fill = FILL;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    OK(access);
    OK(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
    hid_t file = H5Fcreate("a.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
    OK(file);
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(2, shape, most);
    OK(list);
    OK(space);
    OK(H5Pset_chunk(list, 2, chunk));
    OK(H5Pset_fill_value(list, H5T_NATIVE_INT, &fill));
    OK(H5Pset_nbit(list));
    OK(H5Pset_fletcher32(list));
    hid_t dataset = H5Dcreate2(file, "x", H5T_STD_I32LE, space, H5P_DEFAULT, list, H5P_DEFAULT);
    OK(dataset);
    int *these = values(ROWS * BEFORE, 1), *read = allocate(ROWS * AFTER * sizeof *read);
    OK(write_whole(dataset, these));
    OK(H5Dset_extent(dataset, larger));
    OK(read_whole(dataset, read));
    OK(H5Ocopy(file, "x", file, "y", H5P_DEFAULT, H5P_DEFAULT));
    int *found = allocate(ROWS * AFTER * sizeof *found);
    hid_t copy = H5Dopen2(file, "y", H5P_DEFAULT);
    OK(copy);
    OK(read_whole(copy, found));
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < AFTER; column++)
            CHECK(found[row * AFTER + column] == (column < BEFORE ? these[row * BEFORE + column] : FILL));
    OK(H5Dclose(copy));
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
    OK(H5Pclose(list));
    OK(H5Pclose(access));
    OK(H5Fclose(file));
    free(found);
    free(read);
    free(these);
    return 0;
}
