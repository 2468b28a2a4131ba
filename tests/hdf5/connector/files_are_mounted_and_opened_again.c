#include "objects.h"

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), child = make_file("child.h5");
    hid_t group = make_group(file, "g");
    put_values(child, "x", 100, 1);
    OK(H5Fmount(file, "g", child, H5P_DEFAULT));
    CHECK(has_values(file, "g/x", 100, 1));
    OK(H5Funmount(file, "g"));
    CHECK(H5Lexists(file, "g/x", H5P_DEFAULT) == 0);

    hid_t again = H5Freopen(child);
    OK(again);
    OK(H5Fclose(child));
    CHECK(has_values(again, "x", 100, 1));
    hid_t twice = H5Fopen("child.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    OK(twice);
    unsigned long one = 1, other = 2;
    OK(H5Fget_fileno(again, &one));
    OK(H5Fget_fileno(twice, &other));
    CHECK(one == other);
    OK(H5Fclose(twice));
    OK(H5Fclose(again));
    OK(H5Gclose(group));
    OK(H5Fclose(file));
    return 0;
}
