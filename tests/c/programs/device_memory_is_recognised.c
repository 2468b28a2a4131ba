#include "../check.h"

int main(void) {
    need_gpu();
    void *memory = NULL;
    OK(penstock_device_alloc(0, 1 << 20, &memory));
    int kind = -1;
    int device = -1;
    OK(penstock_memory_kind((char *)memory + 12345, &kind, &device));
    CHECK(kind == PENSTOCK_MEMORY_DEVICE);
    CHECK(device == 0);
    OK(penstock_device_free(memory));

    OK(penstock_host_alloc(1 << 20, &memory));
    OK(penstock_memory_kind(memory, &kind, &device));
    CHECK(kind == PENSTOCK_MEMORY_PINNED);
    OK(penstock_host_free(memory));
    return 0;
}
