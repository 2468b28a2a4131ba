#include "../check.h"

int main(void) {
    const size_t length = 3 * 1024 * 1024 + 17;
    make_file("data", length);
    unsigned char *memory = allocate(length);

    penstock_file *file = open_file("data", PENSTOCK_READ);
    OK(penstock_read(file, memory, length, 0, NULL, NULL));
    CHECK(holds(memory, length, 0));
    OK(penstock_close(file));
    free(memory);
    return 0;
}
