#include "../check.h"

#include <stddef.h>

int main(void) {
    make_file("data", 4096);
    unsigned char memory[4096];
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_report report;
    memset(&report, 0x5C, sizeof report);
    report.struct_size = offsetof(penstock_report, elapsed_ns);
    OK(penstock_read(file, memory, sizeof memory, 0, NULL, &report));
    CHECK(report.struct_size == offsetof(penstock_report, elapsed_ns));
    CHECK(report.bytes == sizeof memory);
    const unsigned char *bytes = (const unsigned char *)&report;
    for (size_t i = offsetof(penstock_report, elapsed_ns); i < sizeof report; i++)
        CHECK(bytes[i] == 0x5C);
    OK(penstock_close(file));
    return 0;
}
