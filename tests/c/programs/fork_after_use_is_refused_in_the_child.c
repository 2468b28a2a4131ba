#include "../check.h"

#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    make_file("data", 4096);
    unsigned char memory[4096];
    penstock_file *file = open_file("data", PENSTOCK_READ);
    OK(penstock_read(file, memory, sizeof memory, 0, NULL, NULL));

    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20); /* a hang is the defect that is looked for */
        _exit(penstock_read(file, memory, sizeof memory, 0, NULL, NULL) == PENSTOCK_ERR_FORKED
                  ? 0
                  : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    OK(penstock_read(file, memory, sizeof memory, 0, NULL, NULL));
    OK(penstock_close(file));
    return 0;
}
