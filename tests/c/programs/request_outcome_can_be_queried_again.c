#include "../check.h"

int main(void) {
    const size_t length = 8 * 1024 * 1024;
    make_file("data", length);
    unsigned char *memory = allocate(length);
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_range range = {0, length, memory};
    penstock_request *request = NULL;
    OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, NULL, NULL, 0, &request));
    OK(penstock_request_wait(request, -1));
    OK(penstock_request_wait(request, 0));
    OK(penstock_request_test(request));
    CHECK(holds(memory, length, 0));

    uint64_t moved = 0;
    OK(penstock_request_progress(request, &moved));
    CHECK(moved == length);
    penstock_report report = PENSTOCK_REPORT_INIT;
    OK(penstock_request_report(request, &report));
    CHECK(report.bytes == length);
    penstock_request_free(request);
    OK(penstock_close(file));
    free(memory);
    return 0;
}
