#include "../check.h"

int main(void) {
    make_file("data", 8);
    penstock_file *file = NULL;
    CHECK(penstock_open("data", 0, NULL, &file) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_open("data", 1 << 20, NULL, &file) == PENSTOCK_ERR_INVALID);
    return 0;
}
