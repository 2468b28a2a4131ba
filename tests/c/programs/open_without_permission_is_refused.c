#include "../check.h"

#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    if (geteuid() == 0) skip("the superuser may read every file");
    make_file("secret", 10);
    CHECK(chmod("secret", 0) == 0);
    penstock_file *file = NULL;
    CHECK(penstock_open("secret", PENSTOCK_READ, NULL, &file) == PENSTOCK_ERR_PERMISSION);
    return 0;
}
