/* A process may leave files open, one of them twice. HDF5 alone looks through identifiers that it has freed
 * when it closes them with a connector, and may crash. */
#include "events.h"

static int leave_open(void) {
    begin();
    OK(H5Fcreate("first.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    hid_t file = make_file("second.h5"), again = H5Fopen("second.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    OK(again);
    put_values(file, "values", MANY, 1);
    OK(H5Gcreate2(again, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    return 0;
}

int main(int count, char **arguments) {
    if (count > 1) return leave_open();
    CHECK(run(arguments[0], "leave open") == 0);
    begin();
    CHECK(file_has_values("second.h5", "values", MANY, 1));
    return 0;
}
