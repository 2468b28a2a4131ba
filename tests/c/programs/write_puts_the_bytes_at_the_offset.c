#include "../check.h"

int main(void) {
    const size_t length = 100000;
    unsigned char *memory = allocate(length);
    fill(memory, length, 1000);
    penstock_file *file = open_file("data", PENSTOCK_WRITE | PENSTOCK_CREATE);
    OK(penstock_write(file, memory, length, 1000, NULL, NULL));
    OK(penstock_close(file));
    free(memory);

    size_t found = 0;
    unsigned char *bytes = file_bytes("data", &found);
    CHECK(found == 1000 + length);
    for (size_t i = 0; i < 1000; i++) CHECK(bytes[i] == 0);
    CHECK(holds(bytes + 1000, length, 1000));
    free(bytes);
    return 0;
}
