#include "../check.h"

int main(void) {
    const char *bad[][2] = {
        {"thread=4", "thread"},     {"threads=many", "many"}, {"threads=257", "threads"},
        {"block=1KiB", "block"},     {"block=2GiB", "block"},  {"route=teleport", "teleport"},
        {"durable=maybe", "maybe"}, {"io=aio", "aio"},        {"direct", "direct"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        penstock_options options = PENSTOCK_OPTIONS_INIT;
        CHECK(penstock_options_parse(bad[i][0], &options) == PENSTOCK_ERR_INVALID);
        if (strstr(last_error().message, bad[i][1]) == NULL) {
            fprintf(stderr, "the error for \"%s\" should name it\n", bad[i][0]);
            fail(__FILE__, __LINE__, bad[i][1]);
        }
    }
    return 0;
}
