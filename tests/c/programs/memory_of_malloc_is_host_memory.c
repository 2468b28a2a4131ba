#include "../check.h"

int main(void) {
    unsigned char *memory = allocate(100);
    int kind = -1;
    int device = 7;
    OK(penstock_memory_kind(memory, &kind, &device));
    CHECK(kind == PENSTOCK_MEMORY_HOST);
    CHECK(device == -1);
    free(memory);
    return 0;
}
