#include "../check.h"

int main(void) {
    make_file("data", 4096);
    penstock_file *file = NULL;
    penstock_file_release(NULL);
    penstock_file_release(&file);
    OK(penstock_open("data", PENSTOCK_READ, NULL, &file));
    penstock_file *closed = file;
    penstock_file_release(&file);
    CHECK(file == NULL);
    CHECK(penstock_close(closed) == PENSTOCK_ERR_INVALID);

    void *memory = NULL;
    penstock_device_release(NULL);
    penstock_device_release(&memory);
    penstock_host_release(&memory);
    int devices = 0;
    OK(penstock_device_count(&devices));
    if (devices > 0) {
        OK(penstock_device_alloc(0, 4096, &memory));
        penstock_device_release(&memory);
        CHECK(memory == NULL);
        OK(penstock_host_alloc(4096, &memory));
        penstock_host_release(&memory);
        CHECK(memory == NULL);
    }
    return 0;
}
