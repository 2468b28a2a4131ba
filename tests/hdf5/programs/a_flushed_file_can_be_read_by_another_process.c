#include "../check.h"

int main(int count, char **arguments) {
    begin();
    if (count > 1) {
        CHECK(sec2_finds_values("file.h5", "x", 100000, 1));
        return 0;
    }
    hid_t file = create_file("file.h5");
    put_values(file, "x", 100000, 1);
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    CHECK(setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1) == 0);
    CHECK(run(arguments[0], "reader") == 0);
    OK(H5Fclose(file));
    return 0;
}
