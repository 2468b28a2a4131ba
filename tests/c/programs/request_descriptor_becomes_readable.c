#include "../check.h"

#include <poll.h>

int main(void) {
    const size_t length = 1 << 20;
    make_file("data", length);
    unsigned char *memory = allocate(length);
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_range range = {0, length, memory};
    penstock_request *request = NULL;
    OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, NULL, NULL, 0, &request));
    struct pollfd wait = {-1, POLLIN, 0};
    OK(penstock_request_fd(request, &wait.fd));
    CHECK(poll(&wait, 1, 60000) == 1);
    CHECK(wait.revents & POLLIN);
    OK(penstock_request_test(request));
    CHECK(holds(memory, length, 0));
    penstock_request_free(request);
    OK(penstock_close(file));
    free(memory);
    return 0;
}
