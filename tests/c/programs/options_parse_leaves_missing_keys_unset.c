#include "../check.h"

int main(void) {
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    OK(penstock_options_parse("threads=2", &options));
    CHECK(options.threads == 2);
    CHECK(options.block == 0);
    CHECK(options.route == PENSTOCK_ROUTE_DEFAULT);
    CHECK(options.io == PENSTOCK_IO_DEFAULT);
    CHECK(options.direct == PENSTOCK_CHOICE_DEFAULT);
    CHECK(options.queue_depth == 0);
    CHECK(options.durable == PENSTOCK_CHOICE_DEFAULT);
    return 0;
}
