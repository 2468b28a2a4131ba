#include "../check.h"

#include <fcntl.h>
#include <unistd.h>

int main(void) {
    make_file("data", 1000);
    int descriptor = open("data", O_WRONLY | O_APPEND);
    CHECK(descriptor >= 0);
    penstock_file *file = NULL;
    CHECK(penstock_open_descriptor(descriptor, PENSTOCK_READ, NULL, &file) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_open_descriptor(descriptor, PENSTOCK_WRITE | PENSTOCK_CREATE, NULL, &file) ==
          PENSTOCK_ERR_INVALID);
    CHECK(file == NULL);
    OK(penstock_open_descriptor(descriptor, PENSTOCK_WRITE, NULL, &file));
    CHECK(close(descriptor) == 0);

    unsigned char memory[1000];
    fill(memory, 500, 7);
    OK(penstock_write(file, memory, 500, 100, NULL, NULL));
    OK(penstock_close(file));

    file = open_file("data", PENSTOCK_READ);
    uint64_t size = 0;
    OK(penstock_file_size(file, &size));
    CHECK(size == 1000);
    OK(penstock_read(file, memory, sizeof memory, 0, NULL, NULL));
    CHECK(holds(memory, 100, 0));
    CHECK(holds(memory + 100, 500, 7));
    CHECK(holds(memory + 600, 400, 600));
    OK(penstock_close(file));
    return 0;
}
