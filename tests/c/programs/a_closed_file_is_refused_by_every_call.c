#include "../check.h"

int main(void) {
    const size_t length = 4096;
    make_file("data", length);
    unsigned char *memory = allocate(length);
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_range range = {0, length, memory};
    penstock_request *request = NULL;
    uint64_t size = 0;
    OK(penstock_close(file));
    CHECK(penstock_close(file) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_read(file, memory, length, 0, NULL, NULL) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_write(file, memory, length, 0, NULL, NULL) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_readv(file, &range, 1, NULL, NULL) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_writev(file, &range, 1, NULL, NULL) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, NULL, NULL, 0, &request) ==
          PENSTOCK_ERR_INVALID);
    CHECK(request == NULL);
    CHECK(penstock_file_size(file, &size) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_truncate(file, 0) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_sync(file) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_set_options(file, NULL) == PENSTOCK_ERR_INVALID);
    free(memory);
    return 0;
}
