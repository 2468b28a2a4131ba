#include "../check.h"

#include <pthread.h>

#define WAITERS 4
#define ROUNDS 200

static penstock_request *request;

/* Each call is carried out, or refused because the request is gone. */
static void *use(void *unused) {
    (void)unused;
    for (;;) {
        uint64_t moved = 0;
        penstock_report report = PENSTOCK_REPORT_INIT;
        int status = penstock_request_progress(request, &moved);
        if (status == PENSTOCK_OK) status = penstock_request_report(request, &report);
        if (status == PENSTOCK_OK || status == PENSTOCK_PENDING)
            status = penstock_request_wait(request, 1000);
        if (status == PENSTOCK_ERR_INVALID) return NULL;
        CHECK(status == PENSTOCK_OK || status == PENSTOCK_PENDING);
    }
}

int main(void) {
    const size_t length = 1024 * 1024;
    make_file("data", length);
    unsigned char *memory = allocate(length);
    penstock_file *file = open_file("data", PENSTOCK_READ);
    penstock_range range = {0, length, memory};
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[WAITERS];
        OK(penstock_submit(file, PENSTOCK_OP_READ, &range, 1, NULL, NULL, 0, &request));
        for (int i = 0; i < WAITERS; i++)
            CHECK(pthread_create(&threads[i], NULL, use, NULL) == 0);
        penstock_request_free(request);
        for (int i = 0; i < WAITERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(holds(memory, length, 0));
    OK(penstock_close(file));
    free(memory);
    return 0;
}
