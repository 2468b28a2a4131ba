#include "../rows.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    haddr_t start = H5Dget_offset(dataset);
    write_rows(dataset, 0, 100, 1, 1);
    int *descriptor, found[ROW];
    OK(H5Fget_vfd_handle(file, H5P_DEFAULT, (void **)&descriptor));
    off_t last = (off_t)(start + 99 * sizeof found);
    CHECK(syscall(SYS_pread64, *descriptor, found, sizeof found, last) == sizeof found);
    CHECK(found[0] == value_at(99 * ROW, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    return 0;
}
