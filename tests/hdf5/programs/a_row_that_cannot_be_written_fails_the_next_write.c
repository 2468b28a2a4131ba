#include "../rows.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    fail_at((off_t)(H5Dget_offset(dataset) + 50 * ROW * sizeof(int)), EIO);
    write_rows(dataset, 0, 50, 1, 1);
    herr_t status = write_row(dataset, 50, 1);
    /* Time for the driver to try. */
    pass_time(300);
    if (status >= 0) status = write_row(dataset, ROWS - 1, 1);
    CHECK(status < 0);
    CHECK_ERROR_SAYS("errno = 5");
    fail_no_more();
    OK(write_row(dataset, 50, 1));
    OK(write_row(dataset, ROWS - 1, 1));
    CHECK(are_rows(dataset, 0, 51, 1, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    return 0;
}
