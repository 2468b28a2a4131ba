#include "objects.h"

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), group = make_group(file, "g");
    put_values(file, "x", 100, 1);
    /* Where one of two locations is that of the other. */
    OK(H5Lcreate_hard(file, "x", H5L_SAME_LOC, "y", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_hard(file, "x", group, "x", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lmove(file, "y", group, "y", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lmove(group, "y", H5L_SAME_LOC, "w", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcopy(group, "w", file, "v", H5P_DEFAULT, H5P_DEFAULT));
    OK(H5Lcreate_soft("/g/w", file, "soft", H5P_DEFAULT, H5P_DEFAULT));
    CHECK(has_values(file, "soft", 100, 1) && has_values(file, "v", 100, 1));
    CHECK(H5Lexists(file, "y", H5P_DEFAULT) == 0);
    H5O_info2_t info;
    OK(H5Oget_info_by_name3(file, "x", &info, H5O_INFO_BASIC, H5P_DEFAULT));
    CHECK(info.rc == 4);

    /* Another file, which HDF5 opens by itself. */
    hid_t other = make_file("other.h5");
    OK(H5Lcreate_external("file.h5", "/x", other, "outside", H5P_DEFAULT, H5P_DEFAULT));
    CHECK(has_values(other, "outside", 100, 1));
    CHECK(H5Lcreate_hard(file, "x", other, "hard", H5P_DEFAULT, H5P_DEFAULT) < 0);
    OK(H5Fclose(other));
    OK(H5Gclose(group));
    OK(H5Fclose(file));
    return 0;
}
