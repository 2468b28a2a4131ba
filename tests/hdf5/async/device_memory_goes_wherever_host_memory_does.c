#include "events.h"

enum { ROWS = 200, COLUMNS = 300, COUNT = ROWS * COLUMNS };

/* What only HDF5 can do, or what has to be converted, filtered, filled or picked, by calls with an
 * event set and by calls without. */
static hid_t events;

static void put(hid_t dataset, hid_t type, hid_t memory_space, hid_t file_space, const void *from) {
    if (events != 0)
        OK(H5Dwrite_async(dataset, type, memory_space, file_space, H5P_DEFAULT, from, events));
    else
        OK(H5Dwrite(dataset, type, memory_space, file_space, H5P_DEFAULT, from));
}

static void get(hid_t dataset, hid_t type, hid_t memory_space, hid_t file_space, void *to) {
    if (events != 0)
        OK(H5Dread_async(dataset, type, memory_space, file_space, H5P_DEFAULT, to, events));
    else
        OK(H5Dread(dataset, type, memory_space, file_space, H5P_DEFAULT, to));
    if (events != 0) finish_all(events);
}

static hid_t create(hid_t file, const char *name, hid_t type, hid_t dcpl) {
    const hsize_t sides[] = {ROWS, COLUMNS};
    hid_t space = H5Screate_simple(2, sides, NULL);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    OK(H5Sclose(space));
    return dataset;
}

static void check_round_trip(hid_t file, const char *name, hid_t type, hid_t dcpl) {
    int *these = values(COUNT, 1);
    /* Small enough for every type here. */
    for (int i = 0; i < COUNT; i++) these[i] &= 0x7f;
    void *memory = new_memory_with(these, COUNT * sizeof(int));
    void *again = new_memory(COUNT * sizeof(int));
    hid_t dataset = create(file, name, type, dcpl);
    put(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, memory);
    get(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, again);
    CHECK(memory_holds(again, these, COUNT * sizeof(int)));
    OK(H5Dclose(dataset));
    free_memory(memory);
    free_memory(again);
    free(these);
}

/* Every third column of the inner rows, to and from a part of a larger buffer. */
static void check_hyperslab(hid_t file, const char *name, hid_t dcpl) {
    hid_t dataset = create(file, name, H5T_NATIVE_INT, dcpl);
    const hsize_t sides[] = {ROWS, COLUMNS}, start[] = {10, 1}, stride[] = {1, 3}, count[] = {50, 90};
    hid_t space = H5Screate_simple(2, sides, NULL);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, NULL));
    int *these = values(COUNT, 2), *zeros = calloc(COUNT, sizeof *zeros);
    void *memory = new_memory_with(these, COUNT * sizeof(int));
    void *again = new_memory_with(zeros, COUNT * sizeof(int));
    put(dataset, H5T_NATIVE_INT, space, space, memory);
    get(dataset, H5T_NATIVE_INT, space, space, again);
    for (int row = 0; row < 50; row++)
        for (int column = 0; column < 90; column++) {
            const int at = (10 + row) * COLUMNS + 1 + 3 * column;
            zeros[at] = these[at];
        }
    CHECK(memory_holds(again, zeros, COUNT * sizeof(int)));
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
    free_memory(memory);
    free_memory(again);
    free(these);
    free(zeros);
}

static void check_fill_value(hid_t file, const char *name) {
    const hsize_t chunk[] = {50, 60};
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    const int fill = 17;
    OK(H5Pset_chunk(dcpl, 2, chunk));
    OK(H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill));
    hid_t dataset = create(file, name, H5T_NATIVE_INT, dcpl);
    int *filled = allocate(COUNT * sizeof *filled);
    for (int i = 0; i < COUNT; i++) filled[i] = fill;
    void *memory = new_memory(COUNT * sizeof(int));
    get(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, memory);
    CHECK(memory_holds(memory, filled, COUNT * sizeof(int)));
    OK(H5Dclose(dataset));
    OK(H5Pclose(dcpl));
    free_memory(memory);
    free(filled);
}

static void check_all(hid_t file) {
    const hsize_t chunk[] = {64, 70};
    hid_t chunks = H5Pcreate(H5P_DATASET_CREATE), filters = H5Pcreate(H5P_DATASET_CREATE);
    hid_t compact = H5Pcreate(H5P_DATASET_CREATE), checked = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(chunks, 2, chunk));
    OK(H5Pset_chunk(filters, 2, chunk));
    OK(H5Pset_shuffle(filters));
    if (H5Zfilter_avail(H5Z_FILTER_DEFLATE)) OK(H5Pset_deflate(filters, 4));
    OK(H5Pset_chunk(checked, 2, chunk));
    OK(H5Pset_fletcher32(checked));
    OK(H5Pset_layout(compact, H5D_COMPACT));

    check_round_trip(file, "plain", H5T_NATIVE_INT, H5P_DEFAULT);
    check_round_trip(file, "big-endian", H5T_STD_I32BE, H5P_DEFAULT);
    check_round_trip(file, "short", H5T_NATIVE_SHORT, H5P_DEFAULT);
    check_round_trip(file, "double", H5T_NATIVE_DOUBLE, chunks);
    check_round_trip(file, "chunks", H5T_NATIVE_INT, chunks);
    check_round_trip(file, "big-endian chunks", H5T_STD_I32BE, chunks);
    check_round_trip(file, "filters", H5T_NATIVE_INT, filters);
    check_round_trip(file, "big-endian filters", H5T_STD_I64BE, filters);
    check_round_trip(file, "checked", H5T_NATIVE_INT, checked);
    check_round_trip(file, "compact", H5T_NATIVE_SCHAR, compact);
    check_hyperslab(file, "slab", H5P_DEFAULT);
    check_hyperslab(file, "slab of chunks", chunks);
    check_hyperslab(file, "slab of filters", filters);
    check_fill_value(file, "filled");

    OK(H5Pclose(chunks));
    OK(H5Pclose(filters));
    OK(H5Pclose(compact));
    OK(H5Pclose(checked));
}

int main(void) {
    begin();
    hid_t file = make_file("without.h5");
    check_all(file);
    OK(H5Fclose(file));
    events = new_events();
    file = make_file("with.h5");
    check_all(file);
    OK(H5Fclose(file));
    close_events(events);
    return 0;
}
