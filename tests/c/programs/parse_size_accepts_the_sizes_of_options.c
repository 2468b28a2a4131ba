#include "../check.h"

int main(void)
{
    uint64_t bytes = 7;
    OK(penstock_parse_size("1.5 MiB", &bytes));
    CHECK(bytes == 3 << 19);
    OK(penstock_parse_size("5KB", &bytes));
    CHECK(bytes == 5000);
    CHECK(penstock_parse_size("4parsecs", &bytes) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_parse_size("99999999999999999999", &bytes) == PENSTOCK_ERR_INVALID);
    CHECK(bytes == 5000);
    CHECK(penstock_parse_size(NULL, &bytes) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_parse_size("1", NULL) == PENSTOCK_ERR_INVALID);
    return 0;
}
