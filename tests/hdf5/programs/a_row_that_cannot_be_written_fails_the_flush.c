#include "../rows.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    fail_at((off_t)(H5Dget_offset(dataset) + 50 * ROW * sizeof(int)), ENOSPC);
    write_rows(dataset, 0, 50, 1, 1);
    /* This call or the flush. */
    herr_t status = write_row(dataset, 50, 1);
    if (status >= 0) status = H5Fflush(file, H5F_SCOPE_LOCAL);
    CHECK(status < 0);
    CHECK_ERROR_SAYS("errno = 28");
    CHECK_ERROR_SAYS("file.h5");
    fail_no_more();
    OK(write_row(dataset, 50, 1));
    write_rows(dataset, 51, ROWS, 1, 1);
    OK(H5Fflush(file, H5F_SCOPE_LOCAL));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", VALUES, 1));
    return 0;
}
