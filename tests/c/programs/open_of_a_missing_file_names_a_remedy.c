#include "../check.h"

#include <errno.h>

int main(void) {
    penstock_file *file = NULL;
    CHECK(penstock_open("absent/file", PENSTOCK_READ, NULL, &file) == PENSTOCK_ERR_NOT_FOUND);
    CHECK(file == NULL);

    penstock_error error = last_error();
    CHECK(error.status == PENSTOCK_ERR_NOT_FOUND);
    CHECK(error.os_errno == ENOENT);
    CHECK(strstr(error.path, "absent/file") != NULL);
    CHECK(error.cause[0] != '\0');
    CHECK(error.remedy[0] != '\0');
    CHECK(strstr(error.message, "absent/file") != NULL);
    return 0;
}
