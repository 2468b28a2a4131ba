#include "../check.h"

int main(void) {
    unsigned char memory[5000];
    fill(memory, sizeof memory, 77);
    OK(penstock_save("data", memory, sizeof memory, NULL, NULL));

    unsigned char found[3000];
    penstock_report report = PENSTOCK_REPORT_INIT;
    OK(penstock_load("data", found, sizeof found, 2000, NULL, &report));
    CHECK(memcmp(found, memory + 2000, sizeof found) == 0);
    CHECK(report.bytes == sizeof found);

    CHECK(penstock_load("data", found, sizeof found, 2001, NULL, NULL) == PENSTOCK_ERR_END_OF_FILE);
    CHECK(penstock_load("missing", found, 1, 0, NULL, NULL) == PENSTOCK_ERR_NOT_FOUND);
    return 0;
}
