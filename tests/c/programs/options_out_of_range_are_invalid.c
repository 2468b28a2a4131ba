#include "../check.h"

int main(void) {
    make_file("data", 4096);
    unsigned char memory[4096];
    penstock_file *file = open_file("data", PENSTOCK_READ);

    penstock_options options = PENSTOCK_OPTIONS_INIT;
    options.threads = 1000;
    CHECK(penstock_read(file, memory, 4096, 0, &options, NULL) == PENSTOCK_ERR_INVALID);

    penstock_options route = PENSTOCK_OPTIONS_INIT;
    route.route = 99;
    CHECK(penstock_read(file, memory, 4096, 0, &route, NULL) == PENSTOCK_ERR_INVALID);

    penstock_options unset = PENSTOCK_OPTIONS_INIT;
    unset.struct_size = 0;
    CHECK(penstock_read(file, memory, 4096, 0, &unset, NULL) == PENSTOCK_ERR_INVALID);
    OK(penstock_close(file));
    return 0;
}
