#include "../check.h"

int main(void) {
    make_file("data", 4096);
    unsigned char memory[4096];
    penstock_file *file = open_file("data", PENSTOCK_READ);
    OK(penstock_read(file, memory, sizeof memory, 0, NULL, NULL));

    const pid_t child = forked();
    if (child == 0) {
        _exit(penstock_read(file, memory, sizeof memory, 0, NULL, NULL) == PENSTOCK_ERR_FORKED
                  ? 0
                  : 1);
    }
    wait_for(child);

    OK(penstock_read(file, memory, sizeof memory, 0, NULL, NULL));
    OK(penstock_close(file));
    return 0;
}
