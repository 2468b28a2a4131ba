#include "../check.h"

#include <sys/stat.h>

/* The length of a file; -1 if it is not there. */
static long long length_of(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 ? (long long)about.st_size : -1;
}

int main(void) {
    for (int durable = 0; durable < 2; durable++) {
        penstock_replacement *new = NULL;
        int descriptor = -1;
        OK(penstock_replacement_begin("new", &new, &descriptor));
        CHECK(write(descriptor, "text", 4) == 4);
        CHECK(length_of("new") == -1);
        OK(penstock_replacement_publish(new, durable));
        CHECK(length_of("new") == 4);
        penstock_replacement_release(&new);
        CHECK(new == NULL && length_of("new") == 4);
        penstock_replacement_release(&new);

        OK(penstock_replacement_begin("new", &new, &descriptor));
        penstock_replacement *copy = new;
        penstock_replacement_release(&new);
        CHECK(length_of("new") == 4);
        CHECK(penstock_replacement_publish(copy, durable) == PENSTOCK_ERR_INVALID);
        CHECK(unlink("new") == 0);
    }
    penstock_replacement *new = NULL;
    int descriptor = -1;
    CHECK(penstock_replacement_begin("absent/new", &new, &descriptor) == PENSTOCK_ERR_NOT_FOUND);
    CHECK(penstock_replacement_publish(NULL, 0) == PENSTOCK_ERR_INVALID);
    penstock_replacement_release(NULL);
    return 0;
}
