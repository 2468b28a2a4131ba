#include "../check.h"

int main(void) {
    make_file("data", 100);
    unsigned char memory[100] = {0};
    penstock_file *file = open_file("data", PENSTOCK_READ);
    CHECK(penstock_write(file, memory, sizeof memory, 0, NULL, NULL) > PENSTOCK_PENDING);
    OK(penstock_close(file));

    size_t found = 0;
    unsigned char *bytes = file_bytes("data", &found);
    CHECK(found == 100 && holds(bytes, found, 0));
    free(bytes);
    return 0;
}
