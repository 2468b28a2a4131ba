#include "../check.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5");
    put_values(file, "x", 10000, 1);
    OK(H5Fclose(file));
    CHECK(truncate("file.h5", size_of_file("file.h5") - 1) == 0);
    CHECK(H5Fopen("file.h5", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
    CHECK_ERROR_SAYS("truncated file");
    return 0;
}
