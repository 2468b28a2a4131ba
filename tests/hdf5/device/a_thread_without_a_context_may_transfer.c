#include "../memory.h"

#include <pthread.h>

enum { COUNT = 1000003 };

static void *memory;

/* It may be one that never called CUDA. */
static void *work(void *unused) {
    OK(H5Eset_auto2(H5E_DEFAULT, NULL, NULL));
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    OK(write_whole(dataset, memory));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    void *context = unused;
    CUDA(cuCtxGetCurrent, ADDRESS(&context), 0, 0);
    CHECK(context == NULL);
    return NULL;
}

int main(void) {
    begin();
    need_device();
    int *these = values(COUNT, 1);
    memory = device_memory(COUNT * sizeof(int));
    copy_memory(memory, these, COUNT * sizeof(int));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(sec2_finds_values("file.h5", "x", COUNT, 1));
    free(these);
    return 0;
}
