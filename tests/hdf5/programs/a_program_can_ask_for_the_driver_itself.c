#include "../check.h"

#include <penstock_hdf5.h>

/* Without the environment, and before HDF5 has loaded a plugin. */
int main(void) {
    CHECK(unsetenv("HDF5_DRIVER") == 0 && unsetenv("HDF5_PLUGIN_PATH") == 0);
    begin();
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    CHECK(penstock_fapl_set(fapl, "threads=2") == PENSTOCK_OK);
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    CHECK(is_driven_by_penstock(file));
    put_values(file, "x", 100000, 1);
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", 100000, 1));
    CHECK(penstock_fapl_set(fapl, "mode=fast") == PENSTOCK_ERR_INVALID);
    CHECK(penstock_fapl_set(12345, NULL) != PENSTOCK_OK);
    OK(H5Pclose(fapl));
    return 0;
}
