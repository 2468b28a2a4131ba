#include "events.h"

/* Elements of 64 bytes, of which 8 are written: 16 MiB, and 2 MiB of parts. */
enum { ROWS = 512, COLUMNS = 512, COUNT = ROWS * COLUMNS };

typedef struct {
    char before[24];
    int a, b;
    char after[32];
} Element;

static hid_t make_type(hid_t number, size_t size, size_t offset) {
    hid_t type = H5Tcreate(H5T_COMPOUND, size);
    OK(type);
    OK(H5Tinsert(type, "a", offset, number));
    OK(H5Tinsert(type, "b", offset + 4, number));
    return type;
}

/* The selected elements of memory become the first elements of a dataset. */
static void write_from(hid_t file, const char *name, hid_t number, hid_t list, hid_t memory_space) {
    hid_t events = new_events();
    const hsize_t count = COUNT, start = 0, some = (hsize_t)H5Sget_select_npoints(memory_space);
    hid_t stored = make_type(number, 8, 0), given = make_type(H5T_NATIVE_INT, sizeof(Element), offsetof(Element, a));
    hid_t space = H5Screate_simple(1, &count, NULL);
    OK(space);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &some, NULL));
    hid_t dataset = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, list, H5P_DEFAULT);
    OK(dataset);
    Element *these = allocate(COUNT * sizeof *these);
    for (int i = 0; i < COUNT; i++) {
        these[i].a = value_at((size_t)i, 1);
        these[i].b = value_at((size_t)i, 2);
    }
    void *memory = new_memory_with(these, COUNT * sizeof *these);
    OK(H5Dwrite_async(dataset, given, memory_space, space, H5P_DEFAULT, memory, events));
    if (!is_on_device()) CHECK(count_of(events) == 1);
    free_memory(memory);
    finish_all(events);

    Element *found = allocate(COUNT * sizeof *found), *expected = allocate(COUNT * sizeof *expected);
    OK(H5Dread(dataset, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
    hid_t element = H5Tcreate(H5T_OPAQUE, sizeof(Element));
    OK(element);
    OK(H5Dgather(memory_space, these, element, COUNT * sizeof *expected, expected, NULL, NULL));
    for (hsize_t i = 0; i < some; i++) {
        CHECK(found[i].a == expected[i].a && found[i].b == expected[i].b);
    }
    OK(H5Tclose(element));
    free(expected);
    free(found);
    free(these);
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
    OK(H5Tclose(given));
    OK(H5Tclose(stored));
    close_events(events);
}

int main(void) {
    CHECK(setenv("HDF5_ASYNC_MAX_MEM_MB", "3", 1) == 0);
    begin();
    hid_t file = make_file("file.h5"), chunked = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk = 5000, shape[] = {ROWS, COLUMNS}, single = COUNT;
    OK(chunked);
    OK(H5Pset_chunk(chunked, 1, &chunk));
    OK(H5Pset_shuffle(chunked));
    hid_t all = H5Screate_simple(1, &single, NULL), box = H5Screate_simple(2, shape, NULL);
    const hsize_t start[] = {100, 51}, size[] = {400, 401}, other[] = {7, 3}, other_size[] = {60, 20};
    OK(all);
    OK(box);
    write_from(file, "all", H5T_NATIVE_INT, H5P_DEFAULT, all);
    write_from(file, "chunks", H5T_NATIVE_INT, chunked, all);
    write_from(file, "other byte order", H5T_STD_I32BE, H5P_DEFAULT, all);
    OK(H5Sselect_hyperslab(box, H5S_SELECT_SET, start, NULL, size, NULL));
    write_from(file, "a box", H5T_NATIVE_INT, chunked, box);
    OK(H5Sselect_hyperslab(box, H5S_SELECT_OR, other, NULL, other_size, NULL));
    write_from(file, "two boxes", H5T_STD_I32BE, H5P_DEFAULT, box);
    OK(H5Sclose(box));
    OK(H5Sclose(all));
    OK(H5Pclose(chunked));
    OK(H5Fclose(file));
    return 0;
}
