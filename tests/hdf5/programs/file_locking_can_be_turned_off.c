#include "../check.h"

/* By HDF5's environment variable, and by the property. */
int main(int count, char **arguments) {
    begin();
    if (count > 1) {
        hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
        if (strcmp(arguments[1], "property") == 0) OK(H5Pset_file_locking(fapl, false, true));
        hid_t file = H5Fopen("file.h5", H5F_ACC_RDONLY, fapl);
        OK(file);
        CHECK(is_driven_by_penstock(file));
        OK(H5Fclose(file));
        return 0;
    }
    hid_t file = create_file("file.h5");
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    OK(H5Fclose(file));
    file = open_file("file.h5", H5F_ACC_RDWR);
    CHECK(setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1) == 0);
    CHECK(run(arguments[0], "variable") == 0);
    CHECK(unsetenv("HDF5_USE_FILE_LOCKING") == 0);
    CHECK(run(arguments[0], "property") == 0);
    OK(H5Fclose(file));
    return 0;
}
