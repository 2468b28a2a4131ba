#include "../rows.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    haddr_t start = H5Dget_offset(dataset);
    write_rows(dataset, 0, 100, 1, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(file_has_rows("file.h5", start, 0, 100, 1, 1));
        /* Nothing stays with the child, and it sees what its parent writes. */
        write_rows(dataset, 100, 200, 1, 1);
        CHECK(file_has_rows("file.h5", start, 100, 200, 1, 1));
        CHECK(are_rows(dataset, 0, 200, 1, 1));
        change_file("file.h5", start, 199, 2);
        CHECK(is_row(dataset, 199, 2));
        _exit(0);
    }
    CHECK(finish(child) == 0);
    write_rows(dataset, 200, ROWS, 1, 1);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_rows("file.h5", start, 0, 199, 1, 1));
    CHECK(file_has_rows("file.h5", start, 199, 200, 1, 2));
    CHECK(file_has_rows("file.h5", start, 200, ROWS, 1, 1));
    return 0;
}
