#include "../check.h"

int main(void) {
    make_file("short", 100);
    unsigned char memory[64];
    penstock_file *file = open_file("short", PENSTOCK_READ);
    CHECK(penstock_read(file, memory, sizeof memory, 90, NULL, NULL) ==
          PENSTOCK_ERR_END_OF_FILE);

    penstock_error error = last_error();
    CHECK(error.status == PENSTOCK_ERR_END_OF_FILE);
    CHECK(strstr(error.path, "short") != NULL);
    CHECK(error.offset >= 90 && error.offset <= 100);
    CHECK(error.length > 0);
    CHECK(error.message[0] != '\0');
    OK(penstock_close(file));
    return 0;
}
