#include "../check.h"

int main(void) {
    need_gpu();
    const size_t length = 1 << 20;
    void *gpu = NULL;
    OK(penstock_device_alloc(0, length, &gpu));
    penstock_file *file = open_file("data", PENSTOCK_WRITE | PENSTOCK_CREATE);
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    options.route = PENSTOCK_ROUTE_MAPPED; /* which serves reads only */
    penstock_report report = PENSTOCK_REPORT_INIT;
    OK(penstock_write(file, gpu, length, 0, &options, &report));
    CHECK(report.route == PENSTOCK_ROUTE_STAGED);
    CHECK(report.note[0] != '\0');
    OK(penstock_close(file));
    OK(penstock_device_free(gpu));
    return 0;
}
