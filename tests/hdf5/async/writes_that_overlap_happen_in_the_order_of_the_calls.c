#include "events.h"

enum { COUNT = 300000, WRITES = 120 };

static unsigned state = 1;

static size_t below(size_t limit) {
    state = state * 1664525u + 1013904223u;
    return (size_t)(((unsigned long long)state * limit) >> 32);
}

/* Ranges anywhere, each with values of its own, against an array in memory. */
static void check(hid_t file, const char *name, hid_t dcpl) {
    hid_t dataset = create_dataset(file, name, COUNT, dcpl), events = new_events();
    int *model = calloc(COUNT, sizeof *model), *these = values(COUNT, 1);
    CHECK(model != NULL);
    void *memory = new_memory_with(these, COUNT * sizeof(int));
    for (int i = 0; i < WRITES; i++) {
        const hsize_t count = 1 + below(COUNT / 2), start = below(COUNT - count);
        const size_t from = below(COUNT - count);
        hid_t space = H5Screate_simple(1, &count, NULL), part = slab(COUNT, start, count);
        OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, space, part, H5P_DEFAULT,
                          (char *)memory + from * sizeof(int), events));
        memcpy(model + start, these + from, count * sizeof(int));
        OK(H5Sclose(space));
        OK(H5Sclose(part));
    }
    close_events(events);
    int *found = allocate(COUNT * sizeof *found);
    OK(read_whole(dataset, found));
    CHECK(memcmp(found, model, COUNT * sizeof *found) == 0);
    OK(H5Dclose(dataset));
    free_memory(memory);
    free(found);
    free(model);
    free(these);
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), dcpl = chunked(7000);
    check(file, "plain", H5P_DEFAULT);
    check(file, "chunks", dcpl);
    OK(H5Pset_shuffle(dcpl));
    check(file, "filtered", dcpl);
    OK(H5Pclose(dcpl));
    OK(H5Fclose(file));
    return 0;
}
