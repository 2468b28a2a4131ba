/* A library that prints when it is loaded. */
#include <unistd.h>

__attribute__((constructor)) static void announce(void) {
    if (write(STDOUT_FILENO, "loaded", 6) < 0) _exit(2);
}
