#include "../check.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5");
    put_values(file, "x", 100, 1);
    OK(H5Fclose(file));
    CHECK(H5Fcreate("file.h5", H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT) < 0);
    CHECK_ERROR_SAYS("errno = 17");
    CHECK(sec2_finds_values("file.h5", "x", 100, 1));
    return 0;
}
