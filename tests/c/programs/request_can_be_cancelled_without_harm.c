#include "../check.h"

int main(void) {
    const size_t length = 32 * 1024 * 1024;
    make_file("data", length);
    unsigned char *memory = allocate(length);
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    options.threads = 1;
    options.block = 4096;
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_range range = {0, length, memory};
    penstock_request *request = NULL;
    OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, &options, NULL, 0, &request));
    OK(penstock_request_cancel(request));
    const int status = penstock_request_wait(request, -1);
    CHECK(status == PENSTOCK_ERR_CANCELLED || status == PENSTOCK_OK);
    CHECK(penstock_request_test(request) == status);
    if (status == PENSTOCK_OK) CHECK(holds(memory, length, 0));

    /* Once it is finished, nothing writes to the buffer any more. */
    memset(memory, 0x11, length);
    OK(penstock_drain());
    for (size_t i = 0; i < length; i++) CHECK(memory[i] == 0x11);
    penstock_request_free(request);
    OK(penstock_close(file));
    free(memory);
    return 0;
}
