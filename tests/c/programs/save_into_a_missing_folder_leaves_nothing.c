#include "../check.h"

#include <sys/stat.h>

int main(void) {
    unsigned char memory[10] = {0};
    CHECK(penstock_save("absent/data", memory, sizeof memory, NULL, NULL) ==
          PENSTOCK_ERR_NOT_FOUND);
    struct stat status;
    CHECK(stat("absent", &status) != 0);
    return 0;
}
