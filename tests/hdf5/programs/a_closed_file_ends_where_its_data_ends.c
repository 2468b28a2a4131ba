#include "../check.h"

/* Also after space at the end was given back, and at a point where the file was longer. */
int main(void) {
    begin();
    hsize_t size = 0;
    hid_t file = create_file("file.h5");
    put_values(file, "first", 1000, 1);
    put_values(file, "last", 1000000, 2);
    OK(H5Fclose(file));
    off_t longer = size_of_file("file.h5");
    file = open_file("file.h5", H5F_ACC_RDWR);
    OK(H5Fget_filesize(file, &size));
    CHECK((off_t)size == longer);
    OK(H5Ldelete(file, "last", H5P_DEFAULT));
    OK(H5Fclose(file));
    CHECK(size_of_file("file.h5") < longer - 3900000);
    CHECK(sec2_finds_values("file.h5", "first", 1000, 1));
    return 0;
}
