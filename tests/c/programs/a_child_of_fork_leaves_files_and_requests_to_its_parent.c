#include "../check.h"

enum { SIZE = 1 << 20 };

/* Files and requests that the child closes and frees stay usable in the parent. */
int main(void) {
    make_file("data", SIZE);
    unsigned char *memory = allocate(SIZE);
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_range range = {0, SIZE, memory};
    penstock_request *request = NULL;
    OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, NULL, NULL, 0, &request));
    const pid_t child = forked();
    if (child == 0) {
        CHECK(penstock_request_wait(request, -1) == PENSTOCK_ERR_FORKED);
        penstock_request_free(request);
        OK(penstock_close(file));
        penstock_options options = PENSTOCK_OPTIONS_INIT;
        OK(penstock_options_parse("threads=2", &options));
        _exit(0);
    }
    wait_for(child);
    OK(penstock_request_wait(request, -1));
    CHECK(holds(memory, SIZE, 0));
    penstock_request_free(request);
    OK(penstock_close(file));
    free(memory);
    return 0;
}
