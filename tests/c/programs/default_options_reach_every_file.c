#include "../check.h"

int main(void) {
    const size_t length = 1 << 20;
    make_file("data", length);
    unsigned char *memory = allocate(length);
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    options.block = 65536;
    OK(penstock_set_default_options(&options));
    penstock_report report = PENSTOCK_REPORT_INIT;
    OK(penstock_read(file, memory, length, 0, NULL, &report));
    CHECK(report.block == 65536);

    OK(penstock_set_default_options(NULL));
    OK(penstock_read(file, memory, length, 0, NULL, &report));
    CHECK(report.block != 65536);
    OK(penstock_close(file));
    free(memory);
    return 0;
}
