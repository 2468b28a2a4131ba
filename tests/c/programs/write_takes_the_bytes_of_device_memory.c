#include "../check.h"

int main(void) {
    need_gpu();
    const size_t length = 5 * 1024 * 1024 + 11;
    unsigned char *memory = allocate(length);
    fill(memory, length, 0);
    void *gpu = NULL;
    OK(penstock_device_alloc(0, length, &gpu));
    OK(penstock_copy(gpu, memory, length));
    penstock_file *file = open_file("data", PENSTOCK_WRITE | PENSTOCK_CREATE);
    OK(penstock_write(file, gpu, length, 0, NULL, NULL));
    OK(penstock_close(file));
    OK(penstock_save("saved", gpu, length, NULL, NULL));
    OK(penstock_device_free(gpu));
    free(memory);

    const char *paths[] = {"data", "saved"};
    for (size_t i = 0; i < 2; i++) {
        size_t found = 0;
        unsigned char *bytes = file_bytes(paths[i], &found);
        CHECK(found == length && holds(bytes, found, 0));
        free(bytes);
    }
    return 0;
}
