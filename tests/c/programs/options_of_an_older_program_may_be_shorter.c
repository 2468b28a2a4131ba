#include "../check.h"

#include <stddef.h>

int main(void) {
    make_file("data", 4096);
    unsigned char memory[4096];
    penstock_file *file = open_file("data", PENSTOCK_READ);
    /* What lies behind struct_size is not the library's: nonsense there must not be seen. */
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    options.struct_size = offsetof(penstock_options, io);
    options.io = 12345;
    options.direct = 12345;
    options.durable = 12345;
    OK(penstock_read(file, memory, sizeof memory, 0, &options, NULL));
    CHECK(holds(memory, sizeof memory, 0));
    OK(penstock_close(file));
    return 0;
}
