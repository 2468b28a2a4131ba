#include "../check.h"

int main(void) {
    const size_t room = 1024 * 1024;
    make_file("data", room);
    unsigned char *memory = allocate(room + 64);
    penstock_file *file = open_file("data", PENSTOCK_READ);

    const uint64_t offsets[] = {0, 1, 511, 4095, 4097, 65535};
    const size_t lengths[] = {1, 511, 4096, 4097, 131071, 524288};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
            for (size_t shift = 0; shift < 4; shift++) {
                unsigned char *target = memory + shift;
                memset(memory, 0xA5, room + 64);
                OK(penstock_read(file, target, lengths[j], offsets[i], NULL, NULL));
                CHECK(holds(target, lengths[j], offsets[i]));
                CHECK(target[lengths[j]] == 0xA5);
            }
        }
    }
    OK(penstock_close(file));
    free(memory);
    return 0;
}
