#include "../rows.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    fail_at((off_t)(H5Dget_offset(dataset) + 50 * ROW * sizeof(int)), ENOSPC);
    write_rows(dataset, 0, 50, 1, 1);
    herr_t status = write_row(dataset, 50, 1);
    herr_t closed = H5Dclose(dataset);
    if (status >= 0 && closed >= 0) status = H5Fclose(file);
    CHECK(status < 0 || closed < 0);
    CHECK_ERROR_SAYS("errno = 28");
    fail_no_more();
    return 0;
}
