#include "../check.h"

int main(void) {
    make_file("data", 1 << 20);
    enum { COUNT = 100, LENGTH = 3000 };
    unsigned char *memory = allocate(COUNT * LENGTH);
    penstock_range ranges[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        /* Far and near, backwards, some of them overlapping in the file. */
        ranges[i].offset = (COUNT - i) * 2500;
        ranges[i].length = LENGTH;
        ranges[i].buffer = memory + i * LENGTH;
    }
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_report report = PENSTOCK_REPORT_INIT;
    OK(penstock_readv(file, ranges, COUNT, NULL, &report));
    CHECK(report.bytes == COUNT * LENGTH);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(holds(ranges[i].buffer, LENGTH, ranges[i].offset));
    OK(penstock_close(file));
    free(memory);
    return 0;
}
