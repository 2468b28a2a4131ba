#include "objects.h"

int main(void) {
    begin();
    hid_t from = make_file("from.h5"), to = make_file("to.h5");
    hid_t group = make_group(from, "g");
    put_values(group, "x", 100, 1);
    OK(H5Ocopy(from, "g", to, "copy", H5P_DEFAULT, H5P_DEFAULT));
    CHECK(has_values(to, "copy/x", 100, 1));
    OK(H5Gclose(group));
    OK(H5Fclose(from));
    OK(H5Fclose(to));
    return 0;
}
