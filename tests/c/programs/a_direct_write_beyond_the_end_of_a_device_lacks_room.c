#include "../check.h"
#include "../../loop_device.h"

enum { SIZE = 1 << 20 };

int main(void) {
    char path[32];
    make_file("backing", SIZE);
    int device = block_device("backing", path, sizeof path);
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    OK(penstock_options_parse("direct=yes", &options));
    penstock_file *file = open_file(path, PENSTOCK_READ | PENSTOCK_WRITE);
    unsigned char *memory = allocate(2 * SIZE);
    CHECK(penstock_write(file, memory, SIZE, SIZE / 2, &options, NULL) == PENSTOCK_ERR_NO_SPACE);
    penstock_error error = last_error();
    CHECK(error.offset == SIZE && error.length == SIZE / 2);
    CHECK(error.remedy[0] != '\0');
    OK(penstock_read(file, memory, SIZE, 0, &options, NULL));
    CHECK(holds(memory, SIZE, 0));
    OK(penstock_close(file));
    free(memory);
    CHECK(close(device) == 0);
    return 0;
}
