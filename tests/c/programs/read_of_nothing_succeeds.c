#include "../check.h"

int main(void) {
    make_file("data", 10);
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_report report = PENSTOCK_REPORT_INIT;
    OK(penstock_read(file, NULL, 0, 10, NULL, &report));
    CHECK(report.bytes == 0);
    OK(penstock_close(file));
    return 0;
}
