#include "../check.h"

int main(int count, char **arguments) {
    begin();
    if (count > 1) {
        hid_t file = open_file("file.h5", H5F_ACC_RDONLY);
        CHECK(has_values(file, "x", 1000, 1));
        OK(H5Fclose(file));
        CHECK(H5Fopen("file.h5", H5F_ACC_RDWR, H5P_DEFAULT) < 0);
        CHECK_ERROR_SAYS("errno = 11");
        return 0;
    }
    hid_t file = create_file("file.h5");
    put_values(file, "x", 1000, 1);
    OK(H5Fclose(file));
    file = open_file("file.h5", H5F_ACC_RDONLY);
    CHECK(run(arguments[0], "other") == 0);
    OK(H5Fclose(file));
    return 0;
}
