#include "../check.h"

int main(void) {
    CHECK(penstock_api_version() == PENSTOCK_API_VERSION);
    CHECK(strchr(penstock_version(), '.') != NULL);
    return 0;
}
