#include "../check.h"

int main(void) {
    CHECK(setenv("PENSTOCK_OPTIONS", "threads=none", 1) == 0);
    begin();
    CHECK(H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT) < 0);
    CHECK_ERROR_SAYS("PENSTOCK_OPTIONS: option threads");
    CHECK(access("file.h5", F_OK) != 0);
    return 0;
}
