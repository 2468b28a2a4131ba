#include "../check.h"

#include <pthread.h>

#define READERS 4
#define ROUNDS 200

static penstock_file *file;

/* Each read is carried out, or refused because the file is closed. */
static void *read_on(void *memory) {
    for (;;) {
        int status = penstock_read(file, memory, 4096, 8192, NULL, NULL);
        if (status == PENSTOCK_ERR_INVALID) return NULL;
        OK(status);
        CHECK(holds(memory, 4096, 8192));
    }
}

int main(void) {
    make_file("data", 65536);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[READERS];
        unsigned char *memory[READERS];
        file = open_file("data", PENSTOCK_READ);
        for (int i = 0; i < READERS; i++) {
            memory[i] = allocate(4096);
            CHECK(pthread_create(&threads[i], NULL, read_on, memory[i]) == 0);
        }
        OK(penstock_close(file));
        for (int i = 0; i < READERS; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
            free(memory[i]);
        }
    }
    return 0;
}
