#include "../check.h"

int main(void) {
    make_file("data", 1000);
    penstock_file *file = open_file("data", PENSTOCK_READ | PENSTOCK_WRITE);
    uint64_t size = 0;
    OK(penstock_file_size(file, &size));
    CHECK(size == 1000);
    OK(penstock_truncate(file, 100));
    OK(penstock_truncate(file, 5000));
    OK(penstock_file_size(file, &size));
    CHECK(size == 5000);
    OK(penstock_sync(file));

    unsigned char memory[5000];
    OK(penstock_read(file, memory, sizeof memory, 0, NULL, NULL));
    CHECK(holds(memory, 100, 0));
    for (size_t i = 100; i < sizeof memory; i++) CHECK(memory[i] == 0);
    OK(penstock_close(file));
    return 0;
}
