#include "../check.h"

int main(void) {
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    OK(penstock_options_parse(
        "threads=3;block=2MiB;route=staged;io=uring;direct=no;queue_depth=7;slots=3;durable=yes",
        &options));
    CHECK(options.threads == 3);
    CHECK(options.block == 2u * 1024 * 1024);
    CHECK(options.route == PENSTOCK_ROUTE_STAGED);
    CHECK(options.io == PENSTOCK_IO_URING);
    CHECK(options.direct == PENSTOCK_CHOICE_NO);
    CHECK(options.queue_depth == 7);
    CHECK(options.slots == 3);
    CHECK(options.durable == PENSTOCK_CHOICE_YES);
    return 0;
}
