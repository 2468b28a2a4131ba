#include "../rows.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    haddr_t start = H5Dget_offset(dataset);
    write_rows(dataset, 100, 200, 1, 1);
    change_file("file.h5", start, 99, 2);
    change_file("file.h5", start, 200, 2);
    OK(H5Fflush(file, H5F_SCOPE_LOCAL));
    CHECK(file_has_rows("file.h5", start, 99, 100, 1, 2));
    CHECK(file_has_rows("file.h5", start, 100, 200, 1, 1));
    CHECK(file_has_rows("file.h5", start, 200, 201, 1, 2));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    return 0;
}
