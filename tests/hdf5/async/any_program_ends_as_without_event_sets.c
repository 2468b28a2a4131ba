#include "events.h"

enum { DATASETS = 3, COUNT = 120000, OPERATIONS = 150, PROGRAMS = 6 };

static unsigned state;

static size_t below(size_t limit) {
    state = state * 1664525u + 1013904223u;
    return (size_t)(((unsigned long long)state * limit) >> 32);
}

/* Programs made of writes, reads, extents, flushes and closes in any order, each done at the same time
 * on arrays in memory, as HDF5 without a connector would do it in the file. */
static int *models[DATASETS];
static hsize_t extents[DATASETS];
static hid_t file, datasets[DATASETS], events;
static const char *names[DATASETS] = {"plain", "chunks", "filtered"};

/* A pending read, and the expected elements. */
static struct {
    void *found;
    int *expected;
    size_t count;
} reads[OPERATIONS];
static size_t read_count;

static size_t went_on;

static void finish_reads(void) {
    went_on += count_of(events);
    finish_all(events);
    for (size_t i = 0; i < read_count; i++) {
        CHECK(memory_holds(reads[i].found, reads[i].expected, reads[i].count * sizeof(int)));
        free_memory(reads[i].found);
        free(reads[i].expected);
    }
    read_count = 0;
}

static void write_some(int at, hsize_t start, hsize_t count, int seed) {
    int *these = values(count, seed);
    void *memory = new_memory_with(these, count * sizeof(int));
    hid_t space = H5Screate_simple(1, &count, NULL), part = slab(extents[at], start, count);
    OK(H5Dwrite_async(datasets[at], H5T_NATIVE_INT, space, part, H5P_DEFAULT, memory, events));
    memcpy(models[at] + start, these, count * sizeof(int));
    OK(H5Sclose(space));
    OK(H5Sclose(part));
    free_memory(memory);
    free(these);
}

static void read_some(int at, hsize_t start, hsize_t count) {
    reads[read_count].count = count;
    reads[read_count].found = new_memory(count * sizeof(int));
    reads[read_count].expected = allocate(count * sizeof(int));
    memcpy(reads[read_count].expected, models[at] + start, count * sizeof(int));
    hid_t space = H5Screate_simple(1, &count, NULL), part = slab(extents[at], start, count);
    OK(H5Dread_async(datasets[at], H5T_NATIVE_INT, space, part, H5P_DEFAULT,
                     reads[read_count].found, events));
    read_count++;
    OK(H5Sclose(space));
    OK(H5Sclose(part));
}

static void resize(int at, hsize_t extent) {
    if (at == 0) return;
    OK(H5Dset_extent_async(datasets[at], &extent, events));
    if (extent < extents[at])
        memset(models[at] + extent, 0, (extents[at] - extent) * sizeof(int));
    extents[at] = extent;
}

static void open_again(int at) {
    OK(H5Dclose_async(datasets[at], events));
    datasets[at] = H5Dopen_async(file, names[at], H5P_DEFAULT, events);
    OK(datasets[at]);
}

static void open_file_again(void) {
    for (int i = 0; i < DATASETS; i++) OK(H5Dclose_async(datasets[i], events));
    OK(H5Fclose_async(file, events));
    file = H5Fopen_async("file.h5", H5F_ACC_RDWR, H5P_DEFAULT, events);
    OK(file);
    for (int i = 0; i < DATASETS; i++) OK(datasets[i] = H5Dopen2(file, names[i], H5P_DEFAULT));
}

static void check_program(unsigned seed) {
    state = seed;
    events = new_events();
    file = make_file("file.h5");
    hid_t dcpl = chunked(5000);
    const hsize_t most = H5S_UNLIMITED;
    for (int i = 0; i < DATASETS; i++) {
        if (i == 2) OK(H5Pset_shuffle(dcpl));
        extents[i] = COUNT;
        hid_t space = H5Screate_simple(1, &extents[i], i == 0 ? NULL : &most);
        OK(datasets[i] = H5Dcreate2(file, names[i], H5T_NATIVE_INT, space, H5P_DEFAULT,
                                    i == 0 ? H5P_DEFAULT : dcpl, H5P_DEFAULT));
        OK(H5Sclose(space));
        models[i] = calloc(COUNT, sizeof(int));
        CHECK(models[i] != NULL);
    }
    for (int i = 0; i < OPERATIONS; i++) {
        const int at = (int)below(DATASETS);
        const hsize_t count = 1 + below(extents[at]), start = below(extents[at] - count + 1);
        const size_t what = below(100);
        if (what < 50) write_some(at, start, count, i);
        else if (what < 80) read_some(at, start, count);
        else if (what < 86) resize(at, COUNT / 2 + below(COUNT / 2) + 1);
        else if (what < 92) OK(H5Fflush_async(file, H5F_SCOPE_LOCAL, events));
        else if (what < 96) open_again(at);
        else if (what < 98) open_file_again();
        else finish_reads();
    }
    finish_reads();
    for (int i = 0; i < DATASETS; i++) {
        int *found = allocate(COUNT * sizeof *found);
        OK(read_whole(datasets[i], found));
        CHECK(memcmp(found, models[i], extents[i] * sizeof *found) == 0);
        OK(H5Dclose(datasets[i]));
        free(models[i]);
        free(found);
    }
    close_events(events);
    OK(H5Fclose(file));
    OK(H5Pclose(dcpl));
}

int main(void) {
    begin();
    for (unsigned seed = 1; seed <= PROGRAMS; seed++) check_program(seed);
    CHECK(went_on > OPERATIONS);
    return 0;
}
