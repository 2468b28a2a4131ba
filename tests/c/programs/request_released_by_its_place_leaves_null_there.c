#include "../check.h"

int main(void) {
    const size_t length = 1024 * 1024;
    make_file("data", length);
    unsigned char *memory = allocate(length);
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_range range = {0, length, memory};
    penstock_request *place = NULL;
    penstock_request_release(NULL);
    penstock_request_release(&place);
    OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, NULL, NULL, 0, &place));
    penstock_request_release(&place);
    CHECK(place == NULL);
    CHECK(holds(memory, length, 0));
    OK(penstock_close(file));
    free(memory);
    return 0;
}
