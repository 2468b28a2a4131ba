#include "../check.h"

int main(void) {
    const size_t length = 2 * 1024 * 1024 + 3;
    make_file("data", length);
    unsigned char *memory = allocate(length);
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_report report = PENSTOCK_REPORT_INIT;
    OK(penstock_read(file, memory, length, 0, NULL, &report));
    CHECK(report.route == PENSTOCK_ROUTE_HOST);
    CHECK(report.device == -1);
    CHECK(report.bytes == length);
    CHECK(report.host_buffered + report.host_direct == length);
    CHECK(report.staged_buffered + report.staged_direct + report.mapped == 0);
    CHECK(report.gds_p2p + report.gds_nvfs + report.gds_posix + report.gds_unproven == 0);
    CHECK(report.elapsed_ns > 0);
    CHECK(report.io_calls > 0);
    CHECK(report.threads > 0);
    OK(penstock_close(file));
    free(memory);
    return 0;
}
