#include "../check.h"

#include <pthread.h>

static void *look(void *unused) {
    (void)unused;
    CHECK(last_error().status == PENSTOCK_OK);
    return NULL;
}

int main(void) {
    penstock_file *file = NULL;
    CHECK(penstock_open("absent", PENSTOCK_READ, NULL, &file) == PENSTOCK_ERR_NOT_FOUND);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, look, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(last_error().status == PENSTOCK_ERR_NOT_FOUND);
    return 0;
}
