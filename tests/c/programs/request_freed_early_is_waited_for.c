#include "../check.h"

int main(void) {
    const size_t length = 16 * 1024 * 1024;
    make_file("data", length);
    unsigned char *memory = allocate(length);
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_range range = {0, length, memory};
    penstock_request *request = NULL;
    OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, NULL, NULL, 0, &request));
    penstock_request_free(request);
    CHECK(holds(memory, length, 0));
    OK(penstock_close(file));
    free(memory);
    return 0;
}
