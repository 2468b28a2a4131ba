#include "../check.h"

#include <sched.h>

int main(void) {
    const size_t length = 4 * 1024 * 1024;
    unsigned char *memory = allocate(length);
    fill(memory, length, 0);
    penstock_file *file = open_file("data", PENSTOCK_WRITE | PENSTOCK_CREATE);
    penstock_range range = {0, length, memory};
    penstock_request *request = NULL;
    OK(penstock_submit(file, PENSTOCK_OP_WRITE, &range, 1, NULL, NULL, 0, &request));
    int status;
    while ((status = penstock_request_test(request)) == PENSTOCK_PENDING) sched_yield();
    OK(status);
    penstock_request_free(request);
    OK(penstock_close(file));
    free(memory);

    size_t found = 0;
    unsigned char *bytes = file_bytes("data", &found);
    CHECK(found == length && holds(bytes, found, 0));
    free(bytes);
    return 0;
}
