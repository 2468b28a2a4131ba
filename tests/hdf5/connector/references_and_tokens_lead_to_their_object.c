#include "objects.h"

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), group = make_group(file, "g");
    put_values(group, "x", 100, 1);

    H5R_ref_t reference;
    OK(H5Rcreate_object(file, "/g", H5P_DEFAULT, &reference));
    hid_t found = H5Ropen_object(&reference, H5P_DEFAULT, H5P_DEFAULT);
    OK(found);
    CHECK(has_values(found, "x", 100, 1));
    OK(H5Gclose(found));
    OK(H5Rdestroy(&reference));

    H5O_info2_t info;
    OK(H5Oget_info3(group, &info, H5O_INFO_BASIC));
    found = H5Oopen_by_token(file, info.token);
    OK(found);
    CHECK(has_values(found, "x", 100, 1));
    OK(H5Oclose(found));

    char *text;
    H5O_token_t token;
    int order = 1;
    OK(H5Otoken_to_str(file, &info.token, &text));
    OK(H5Otoken_from_str(file, text, &token));
    OK(H5Otoken_cmp(file, &info.token, &token, &order));
    CHECK(order == 0);
    OK(H5free_memory(text));

    hid_t home = H5Iget_file_id(group);
    OK(home);
    CHECK(has_values(home, "g/x", 100, 1));
    OK(H5Fclose(home));
    OK(H5Gclose(group));
    OK(H5Fclose(file));
    return 0;
}
