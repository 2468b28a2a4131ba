#include "../rows.h"

int main(void) {
    CHECK(setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1) == 0);
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    haddr_t start = H5Dget_offset(dataset);
    for (size_t row = 0; row < 100; row++) {
        OK(write_row(dataset, row, 1));
        CHECK(file_has_rows("file.h5", start, row, row + 1, 1, 1));
        change_file("file.h5", start, row, 2);
        CHECK(is_row(dataset, row, 2));
    }
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    return 0;
}
