#include "../selections.h"

/* HDF5 chooses the index by the limits of the dataset and the version of the format. */
static void check_index(hsize_t limit_of_rows, hsize_t limit_of_columns) {
    const hsize_t limits[2] = {limit_of_rows, limit_of_columns};
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    CHECK(is_driven_by_penstock(file));
    hid_t space = H5Screate_simple(2, shape, limits);
    OK(space);
    hid_t dataset = H5Dcreate2(file, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, chunked().dcpl,
                               H5P_DEFAULT);
    OK(dataset);
    int *written = values(ELEMENTS, 7);
    void *memory = new_memory_with(written, BYTES), *found = new_memory(BYTES);
    OK(write_whole(dataset, memory));
    OK(read_whole(dataset, found));
    CHECK(memory_holds(found, written, BYTES));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", ELEMENTS, 7));
    free_memory(found);
    free_memory(memory);
    free(written);
    OK(H5Sclose(space));
    OK(H5Pclose(fapl));
}

int main(void) {
    begin();
    check_index(ROWS, COLUMNS);
    check_index(H5S_UNLIMITED, COLUMNS);
    check_index(H5S_UNLIMITED, H5S_UNLIMITED);
    return 0;
}
