#include "../check.h"

int main(void) {
    const size_t length = 4096;
    make_file("data", length);
    unsigned char *memory = allocate(length);
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_range range = {0, length, memory};
    penstock_request *freed = NULL, *other = NULL;
    OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, NULL, NULL, 0, &freed));
    penstock_request_free(freed);
    /* The memory of the first one may serve the second one; its handle does not. */
    OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, NULL, NULL, 0, &other));
    CHECK(other != freed);
    uint64_t moved = 0;
    int fd = -1;
    penstock_report report = PENSTOCK_REPORT_INIT;
    CHECK(penstock_request_wait(freed, -1) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_request_test(freed) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_request_turn(freed) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_request_cancel(freed) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_request_progress(freed, &moved) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_request_arrived(freed, &moved) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_request_report(freed, &report) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_request_fd(freed, &fd) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_request_hold_stream(freed, NULL) == PENSTOCK_ERR_INVALID);
    CHECK(last_error().remedy[0] != '\0');
    penstock_request_free(freed);
    OK(penstock_request_wait(other, -1));
    penstock_request_free(other);
    OK(penstock_close(file));
    free(memory);
    return 0;
}
