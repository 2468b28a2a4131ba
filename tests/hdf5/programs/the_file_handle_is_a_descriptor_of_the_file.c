#include "../check.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5");
    void *handle = NULL;
    OK(H5Fget_vfd_handle(file, H5P_DEFAULT, &handle));
    struct stat by_handle, by_name;
    CHECK(handle != NULL && fstat(*(int *)handle, &by_handle) == 0);
    CHECK(stat("file.h5", &by_name) == 0);
    CHECK(by_handle.st_ino == by_name.st_ino && by_handle.st_dev == by_name.st_dev);
    OK(H5Fclose(file));
    return 0;
}
