#include "../check.h"

#include <errno.h>
#include <sys/mman.h>

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS 0x20 /* Linux has it, POSIX does not name it */
#endif

int main(void) {
    const size_t length = 1 << 20;
    make_file("data", length);
    /* Memory that the kernel refuses to fill: the read fails on a worker, after the submission. */
    void *memory = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    options.direct = PENSTOCK_CHOICE_NO;
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_range range = {0, length, memory};
    penstock_request *request = NULL;
    OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, &options, NULL, 0, &request));
    CHECK(penstock_request_wait(request, -1) == PENSTOCK_ERR_IO);
    CHECK(last_error().os_errno == EFAULT);
    CHECK(strstr(last_error().path, "data") != NULL);
    CHECK(penstock_request_test(request) == PENSTOCK_ERR_IO);
    penstock_request_free(request);
    OK(penstock_close(file));
    CHECK(munmap(memory, length) == 0);
    return 0;
}
