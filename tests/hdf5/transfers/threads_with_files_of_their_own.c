#include "../memory.h"

#include <pthread.h>

enum { THREADS = 6, TURNS = 4, COUNT = 300007 };

/* An HDF5 that was not built thread-safe is the application's to guard. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool guarded;

#define ALONE(statements) \
    do { \
        if (guarded) pthread_mutex_lock(&mutex); \
        statements; \
        if (guarded) pthread_mutex_unlock(&mutex); \
    } while (0)

static void *work(void *argument) {
    int number = *(int *)argument;
    char path[] = "0.h5";
    path[0] = (char)('0' + number);
    if (is_on_device()) {
        void *context = NULL;
        CUDA(cuDevicePrimaryCtxRetain, ADDRESS(&context), 0, 0);
        CUDA(cuCtxSetCurrent, ADDRESS(context), 0, 0);
    }
    void *found = new_memory(COUNT * sizeof(int));
    ALONE(OK(H5Eset_auto2(H5E_DEFAULT, NULL, NULL)));
    hid_t file, dataset;
    ALONE(file = create_file(path));
    for (int turn = 0; turn < TURNS; turn++) {
        int seed = number * TURNS + turn, *these = values(COUNT, seed);
        char name[2] = {(char)('a' + turn), 0};
        void *memory = new_memory_with(these, COUNT * sizeof(int));
        ALONE(dataset = create_dataset(file, name, COUNT, H5P_DEFAULT));
        ALONE(OK(write_whole(dataset, memory)));
        ALONE(OK(read_whole(dataset, found)));
        CHECK(memory_has_values(found, COUNT, seed));
        ALONE(OK(H5Dclose(dataset)));
        free_memory(memory);
        free(these);
    }
    ALONE(OK(H5Fclose(file)));
    free_memory(found);
    return NULL;
}

int main(void) {
    begin();
    bool is_threadsafe = false;
    OK(H5is_library_threadsafe(&is_threadsafe));
    guarded = !is_threadsafe;
    (void)is_on_device();
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < THREADS * TURNS; i++) {
        char path[] = "0.h5", name[2] = {(char)('a' + i % TURNS), 0};
        path[0] = (char)('0' + i / TURNS);
        CHECK(sec2_finds_values(path, name, COUNT, i));
    }
    return 0;
}
