#include "../check.h"

int main(void) {
    const size_t length = 1 << 20;
    make_file("data", length);
    unsigned char *memory = allocate(length);
    penstock_options outer = PENSTOCK_OPTIONS_INIT;
    outer.block = 65536;
    outer.threads = 1;
    penstock_file *file = NULL;
    OK(penstock_open("data", PENSTOCK_READ, &outer, &file));

    penstock_report report = PENSTOCK_REPORT_INIT;
    OK(penstock_read(file, memory, length, 0, NULL, &report));
    CHECK(report.block == 65536);
    CHECK(report.threads == 1);

    penstock_options inner = PENSTOCK_OPTIONS_INIT;
    inner.block = 131072;
    OK(penstock_read(file, memory, length, 0, &inner, &report));
    CHECK(report.block == 131072);
    CHECK(report.threads == 1);
    OK(penstock_close(file));
    free(memory);
    return 0;
}
