#include "../check.h"

int main(void) {
    unsigned char memory[8];
    uint64_t size = 0;
    penstock_file *file = NULL;
    CHECK(penstock_open(NULL, PENSTOCK_READ, NULL, &file) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_open("data", PENSTOCK_READ, NULL, NULL) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_read(NULL, memory, 8, 0, NULL, NULL) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_file_size(NULL, &size) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_options_parse("threads=1", NULL) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_request_wait(NULL, 0) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_describe(NULL, NULL) == PENSTOCK_ERR_INVALID);

    make_file("data", 8);
    file = open_file("data", PENSTOCK_READ);
    CHECK(penstock_read(file, NULL, 8, 0, NULL, NULL) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_readv(file, NULL, 1, NULL, NULL) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_file_size(file, NULL) == PENSTOCK_ERR_INVALID);
    OK(penstock_close(file));

    /* As with free(), nothing is a thing that may be freed. */
    penstock_request_free(NULL);
    penstock_string_free(NULL);
    return 0;
}
