#include "../check.h"

#define NEWER(name, type) \
    struct { \
        type known; \
        unsigned char unknown[24]; \
    } name; \
    memset(&name, 0xA5, sizeof name); \
    name.known.struct_size = sizeof name

#define ARE_ZERO(bytes) (memcmp(bytes, (const unsigned char[24]){0}, 24) == 0)

int main(void) {
    make_file("data", 4096);
    unsigned char memory[4096];
    penstock_file *file = open_file("data", PENSTOCK_READ);
    NEWER(report, penstock_report);
    OK(penstock_read(file, memory, 4096, 0, NULL, &report.known));
    CHECK(report.known.bytes == 4096);
    CHECK(ARE_ZERO(report.unknown));

    /* The options can be given to the library that has filled them. */
    NEWER(options, penstock_options);
    OK(penstock_options_parse("threads=2", &options.known));
    CHECK(ARE_ZERO(options.unknown));
    OK(penstock_read(file, memory, 4096, 0, &options.known, NULL));

    CHECK(penstock_read(file, memory, 4097, 0, NULL, NULL) == PENSTOCK_ERR_END_OF_FILE);
    NEWER(error, penstock_error);
    OK(penstock_last_error(&error.known));
    CHECK(error.known.status == PENSTOCK_ERR_END_OF_FILE && error.known.reserved == 0);
    CHECK(ARE_ZERO(error.unknown));
    OK(penstock_close(file));
    return 0;
}
