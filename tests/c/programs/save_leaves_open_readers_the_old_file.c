#include "../check.h"

int main(void) {
    make_file("data", 4096);
    penstock_file *old = open_file("data", PENSTOCK_READ);
    unsigned char zeros[4096] = {0};
    OK(penstock_save("data", zeros, sizeof zeros, NULL, NULL));

    unsigned char memory[4096];
    OK(penstock_read(old, memory, sizeof memory, 0, NULL, NULL));
    CHECK(holds(memory, sizeof memory, 0));
    OK(penstock_close(old));

    size_t found = 0;
    unsigned char *bytes = file_bytes("data", &found);
    CHECK(found == sizeof zeros && memcmp(bytes, zeros, found) == 0);
    free(bytes);
    return 0;
}
