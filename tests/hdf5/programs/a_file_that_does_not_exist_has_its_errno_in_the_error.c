#include "../check.h"

int main(void) {
    begin();
    CHECK(H5Fopen("absent.h5", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
    CHECK_ERROR_SAYS("errno = 2");
    CHECK_ERROR_SAYS("absent.h5");
    CHECK(access("absent.h5", F_OK) != 0);
    return 0;
}
