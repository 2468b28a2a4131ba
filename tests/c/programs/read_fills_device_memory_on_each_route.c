#include "../check.h"

int main(void) {
    need_gpu();
    const size_t length = 5 * 1024 * 1024 + 11;
    make_file("data", length + 3);
    unsigned char *memory = allocate(length);
    void *gpu = NULL;
    OK(penstock_device_alloc(0, length, &gpu));
    penstock_file *file = open_file("data", PENSTOCK_READ);

    const int routes[] = {PENSTOCK_ROUTE_AUTO, PENSTOCK_ROUTE_STAGED, PENSTOCK_ROUTE_MAPPED};
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        penstock_options options = PENSTOCK_OPTIONS_INIT;
        options.route = routes[i];
        penstock_report report = PENSTOCK_REPORT_INIT;
        memset(memory, 0, length);
        OK(penstock_copy(gpu, memory, length));
        OK(penstock_read(file, gpu, length, 3, &options, &report));
        OK(penstock_copy(memory, gpu, length));
        CHECK(holds(memory, length, 3));
        CHECK(report.device == 0);
        CHECK(report.host_buffered + report.host_direct == 0);
    }
    OK(penstock_close(file));
    OK(penstock_device_free(gpu));
    free(memory);
    return 0;
}
