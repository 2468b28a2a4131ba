#include "../rows.h"

int main(void) {
    begin();
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    hid_t dataset = create_rows(file, "x");
    haddr_t start = H5Dget_offset(dataset);
    write_rows(dataset, 0, 100, 1, 1);
    OK(H5Fstart_swmr_write(file));
    CHECK(file_has_rows("file.h5", start, 0, 100, 1, 1));
    for (size_t row = 100; row < 200; row++) {
        OK(write_row(dataset, row, 1));
        CHECK(file_has_rows("file.h5", start, row, row + 1, 1, 1));
        /* Nor is what was read kept. */
        change_file("file.h5", start, row, 2);
        CHECK(is_row(dataset, row, 2));
    }
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(fapl));
    return 0;
}
