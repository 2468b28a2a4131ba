#include "../memory.h"

#include <pthread.h>

enum { THREADS = 6, TURNS = 5, COUNT = 200003 };

static hid_t file;

static void *work(void *argument) {
    int number = *(int *)argument;
    if (is_on_device()) {
        void *context = NULL;
        CUDA(cuDevicePrimaryCtxRetain, ADDRESS(&context), 0, 0);
        CUDA(cuCtxSetCurrent, ADDRESS(context), 0, 0);
    }
    OK(H5Eset_auto2(H5E_DEFAULT, NULL, NULL));
    char name[2] = {(char)('a' + number), 0};
    void *found = new_memory(COUNT * sizeof(int));
    hid_t dataset = create_dataset(file, name, COUNT, H5P_DEFAULT);
    for (int turn = 0; turn < TURNS; turn++) {
        int seed = number + turn, *these = values(COUNT, seed);
        void *memory = new_memory_with(these, COUNT * sizeof(int));
        OK(write_whole(dataset, memory));
        OK(read_whole(dataset, found));
        CHECK(memory_has_values(found, COUNT, seed));
        free_memory(memory);
        free(these);
    }
    OK(H5Dclose(dataset));
    free_memory(found);
    return NULL;
}

int main(void) {
    begin();
    bool is_threadsafe = false;
    OK(H5is_library_threadsafe(&is_threadsafe));
    if (!is_threadsafe) skip("this HDF5 is not thread-safe");
    (void)is_on_device();
    file = create_file("file.h5");
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(H5Fclose(file));
    for (int i = 0; i < THREADS; i++) {
        char name[2] = {(char)('a' + i), 0};
        CHECK(sec2_finds_values("file.h5", name, COUNT, i + TURNS - 1));
    }
    return 0;
}
