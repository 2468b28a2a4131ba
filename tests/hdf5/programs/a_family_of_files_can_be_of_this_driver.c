#include "../check.h"

int main(void) {
    begin();
    hid_t member = H5Pcreate(H5P_FILE_ACCESS), ours = H5Pcreate(H5P_FILE_ACCESS);
    hid_t theirs = H5Pcreate(H5P_FILE_ACCESS), plain = sec2();
    OK(H5Pset_fapl_family(ours, 1 << 20, member));
    OK(H5Pset_fapl_family(theirs, 1 << 20, plain));
    hid_t file = H5Fcreate("file%d.h5", H5F_ACC_TRUNC, H5P_DEFAULT, ours);
    OK(file);
    put_values(file, "x", 1000000, 1);
    CHECK(has_values(file, "x", 1000000, 1));
    void *handle = NULL;
    OK(H5Pset_family_offset(ours, 1 << 20));
    OK(H5Fget_vfd_handle(file, ours, &handle));
    struct stat by_handle, by_name;
    CHECK(fstat(*(int *)handle, &by_handle) == 0 && stat("file1.h5", &by_name) == 0);
    CHECK(by_handle.st_ino == by_name.st_ino);
    OK(H5Fclose(file));
    file = H5Fopen("file%d.h5", H5F_ACC_RDONLY, theirs);
    OK(file);
    CHECK(has_values(file, "x", 1000000, 1));
    OK(H5Fclose(file));
    return 0;
}
