#include "objects.h"

int main(void) {
    for (int round = 0; round < 3; round++) {
        begin();
        hid_t file = make_file("file.h5");
        put_values(file, "x", 100, round);
        OK(H5close());
        begin();
        file = H5Fopen("file.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
        OK(file);
        CHECK(has_values(file, "x", 100, round));
        OK(H5close());
    }
    return 0;
}
