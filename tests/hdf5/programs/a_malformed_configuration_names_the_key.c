#include "../check.h"

/* In the environment, which HDF5 reads when it starts, and in a property list. */
int main(int count, char **arguments) {
    if (count == 1) {
        CHECK(setenv("HDF5_DRIVER_CONFIG", "threads=4;block=many", 1) == 0);
        CHECK(run(arguments[0], "variable") == 0);
    }
    begin();
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    if (count == 1) OK(H5Pset_driver_by_name(fapl, "penstock", "colour=red"));
    CHECK(H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl) < 0);
    if (count == 1)
        CHECK_ERROR_SAYS("colour");
    else
        CHECK_ERROR_SAYS("block");
    CHECK(access("file.h5", F_OK) != 0);
    OK(H5Pclose(fapl));
    return 0;
}
