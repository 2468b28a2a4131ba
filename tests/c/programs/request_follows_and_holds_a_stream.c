#include "../check.h"

int main(void) {
    need_gpu();
    const size_t length = 1 << 20;
    make_file("data", length);
    unsigned char *memory = allocate(length);
    void *gpu = NULL;
    OK(penstock_device_alloc(0, length, &gpu));
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_range range = {0, length, gpu};
    penstock_request *request = NULL;
    OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, NULL, NULL,
                       PENSTOCK_AFTER_STREAM | PENSTOCK_STREAM_WAITS, &request));
    OK(penstock_request_wait(request, -1));
    OK(penstock_copy(memory, gpu, length));
    CHECK(holds(memory, length, 0));
    penstock_request_free(request);

    OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, NULL, NULL, 0, &request));
    OK(penstock_request_hold_stream(request, NULL));
    OK(penstock_request_wait(request, -1));
    penstock_request_free(request);
    OK(penstock_close(file));
    OK(penstock_device_free(gpu));
    free(memory);
    return 0;
}
