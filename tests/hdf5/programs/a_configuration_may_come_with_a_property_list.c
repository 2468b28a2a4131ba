#include "../check.h"

int main(void) {
    CHECK(unsetenv("HDF5_DRIVER") == 0);
    begin();
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_driver_by_name(fapl, "penstock", "threads=2;block=1MiB"));
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    CHECK(is_driven_by_penstock(file));
    put_values(file, "x", 3000000, 1);
    CHECK(has_values(file, "x", 3000000, 1));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", 3000000, 1));
    OK(H5Pclose(fapl));
    return 0;
}
