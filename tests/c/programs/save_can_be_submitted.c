#include "../check.h"

int main(void) {
    const size_t length = 3 * 1024 * 1024 + 1;
    unsigned char *memory = allocate(length);
    fill(memory, length, 5);
    penstock_request *request = NULL;
    OK(penstock_save_submit("data", memory, length, NULL, NULL, 0, &request));
    OK(penstock_request_wait(request, -1));
    penstock_request_free(request);
    free(memory);

    size_t found = 0;
    unsigned char *bytes = file_bytes("data", &found);
    CHECK(found == length && holds(bytes, found, 5));
    free(bytes);
    return 0;
}
