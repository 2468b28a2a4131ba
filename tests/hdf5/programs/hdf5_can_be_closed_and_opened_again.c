#include "../check.h"

int main(void) {
    for (int turn = 0; turn < 3; turn++) {
        begin();
        hid_t file = create_file("file.h5");
        put_values(file, "x", 2000000, turn);
        OK(H5Fclose(file));
        CHECK(sec2_finds_values("file.h5", "x", 2000000, turn));
        OK(H5close());
    }
    return 0;
}
