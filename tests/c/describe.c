/* Has Penstock look for what the machine has, and so for CUDA's driver. */
#include <penstock.h>

#include <stddef.h>

int main(void) {
    char *json = NULL;
    int status = penstock_describe("/", &json);
    penstock_string_free(json);
    return status == PENSTOCK_OK ? 0 : 1;
}
