#include "../check.h"

int main(int count, char **arguments) {
    begin();
    if (count > 1) {
        CHECK(H5Fopen("file.h5", H5F_ACC_RDWR, H5P_DEFAULT) < 0);
        CHECK_ERROR_SAYS("errno = 11");
        CHECK(H5Fopen("file.h5", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
        CHECK_ERROR_SAYS("errno = 11");
        return 0;
    }
    hid_t file = create_file("file.h5");
    CHECK(run(arguments[0], "other") == 0);
    OK(H5Fclose(file));
    return 0;
}
