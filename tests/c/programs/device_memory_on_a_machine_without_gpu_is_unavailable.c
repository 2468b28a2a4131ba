#include "../check.h"

int main(void) {
    int count = -1;
    OK(penstock_device_count(&count));
    if (count > 0) skip("there is a CUDA device");
    void *memory = NULL;
    CHECK(penstock_device_alloc(0, 4096, &memory) == PENSTOCK_ERR_UNAVAILABLE);
    CHECK(last_error().remedy[0] != '\0');
    return 0;
}
