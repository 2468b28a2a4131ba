#include "../check.h"

int main(void) {
    enum { COUNT = 64, LENGTH = 1000 };
    unsigned char *memory = allocate(COUNT * LENGTH);
    penstock_range ranges[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        const size_t place = COUNT - 1 - i;
        ranges[i].offset = place * LENGTH;
        ranges[i].length = LENGTH;
        ranges[i].buffer = memory + i * LENGTH;
        fill(ranges[i].buffer, LENGTH, ranges[i].offset);
    }
    penstock_file *file = open_file("data", PENSTOCK_WRITE | PENSTOCK_CREATE);
    OK(penstock_writev(file, ranges, COUNT, NULL, NULL));
    OK(penstock_close(file));
    free(memory);

    size_t found = 0;
    unsigned char *bytes = file_bytes("data", &found);
    CHECK(found == COUNT * LENGTH);
    CHECK(holds(bytes, found, 0));
    free(bytes);
    return 0;
}
