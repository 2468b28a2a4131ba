#include "../check.h"

int main(void) {
    enum { COUNT = 200, LENGTH = 100003 };
    make_file("data", (size_t)COUNT * LENGTH);
    unsigned char *memory = allocate((size_t)COUNT * LENGTH);
    penstock_request *requests[COUNT];
    penstock_file *file = open_file("data", PENSTOCK_READ);
    for (size_t i = 0; i < COUNT; i++) {
        penstock_range range = {i * LENGTH, LENGTH, memory + i * LENGTH};
        OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, NULL, NULL, 0, &requests[i]));
    }
    for (size_t i = COUNT; i-- > 0;) OK(penstock_request_wait(requests[i], -1));
    CHECK(holds(memory, (size_t)COUNT * LENGTH, 0));
    for (size_t i = 0; i < COUNT; i++) penstock_request_free(requests[i]);
    OK(penstock_close(file));
    free(memory);
    return 0;
}
