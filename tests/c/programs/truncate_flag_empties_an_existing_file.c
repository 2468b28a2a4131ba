#include "../check.h"

int main(void) {
    make_file("data", 1000);
    penstock_file *file = open_file("data", PENSTOCK_WRITE | PENSTOCK_TRUNCATE);
    uint64_t size = 1;
    OK(penstock_file_size(file, &size));
    CHECK(size == 0);
    OK(penstock_close(file));
    return 0;
}
