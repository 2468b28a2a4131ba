#include "../check.h"

int main(void) {
    begin();
    CHECK(mkdir("folder", 0700) == 0);
    CHECK(H5Fopen("folder", H5F_ACC_RDWR, H5P_DEFAULT) < 0);
    CHECK_ERROR_SAYS("errno = 21");
    CHECK(H5Fcreate("folder/absent/file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT) < 0);
    CHECK_ERROR_SAYS("errno = 2");
    return 0;
}
