#include "events.h"

enum { THREADS = 4, STEPS = 10 };

static hid_t file;

static void *work(void *number) {
    const int thread = *(int *)number;
    hid_t events = new_events();
    for (int step = 0; step < STEPS; step++) {
        const int seed = thread * STEPS + step;
        char name[32];
        snprintf(name, sizeof name, "%d", seed);
        hid_t dataset = create_dataset(file, name, MANY / 4, H5P_DEFAULT);
        int *these = values(MANY / 4, seed), *again = allocate(MANY);
        OK(write_later(dataset, these, events));
        OK(read_later(dataset, again, events));
        finish_all(events);
        CHECK(memcmp(these, again, MANY) == 0);
        OK(H5Dclose_async(dataset, events));
        free(these);
        free(again);
    }
    close_events(events);
    return NULL;
}

int main(void) {
    begin();
    hbool_t is_threadsafe = false;
    OK(H5is_library_threadsafe(&is_threadsafe));
    if (!is_threadsafe) skip("this HDF5 takes one thread at a time");
    file = make_file("file.h5");
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(H5Fclose(file));
    for (int i = 0; i < THREADS * STEPS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d", i);
        CHECK(file_has_values("file.h5", name, MANY / 4, i));
    }
    return 0;
}
