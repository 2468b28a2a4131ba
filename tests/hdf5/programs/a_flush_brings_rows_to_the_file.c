#include "../rows.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    haddr_t start = H5Dget_offset(dataset);
    write_rows(dataset, 0, 100, 1, 1);
    OK(H5Fflush(file, H5F_SCOPE_LOCAL));
    CHECK(file_has_rows("file.h5", start, 0, 100, 1, 1));
    write_rows(dataset, 100, 200, 1, 1);
    OK(H5Dflush(dataset));
    CHECK(file_has_rows("file.h5", start, 0, 200, 1, 1));
    write_rows(dataset, 200, 300, 1, 1);
    OK(H5Oflush(dataset));
    CHECK(file_has_rows("file.h5", start, 0, 300, 1, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    return 0;
}
