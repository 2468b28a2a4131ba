/* A read in the background needs the elements in the file, and not the metadata: H5Dflush, of which HDF5
 * informs the program, would also write these. The elements may be in HDF5's own buffers. */
#include "events.h"

static herr_t flushed(hid_t object, void *count) {
    (void)object;
    ++*(int *)count;
    return 0;
}

static void put_some(hid_t dataset, hsize_t start, hsize_t count, int seed) {
    hid_t space = slab(MANY, start, count), memory = H5Screate_simple(1, &count, NULL);
    OK(memory);
    int *these = values(MANY, seed);
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, these + start));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
    free(these);
}

/* What was written last is read, wherever it lies. */
static void read_after_writes(hid_t dataset, hid_t events) {
    const hsize_t starts[] = {0, 100, MANY / 2, MANY - 10, MANY - 1};
    for (int i = 0; i < 5; i++) {
        const hsize_t count = starts[i] + 10 <= MANY ? 10 : 1;
        put_some(dataset, starts[i], count, i + 2);
        int *found = allocate(MANY * sizeof *found);
        OK(read_later(dataset, found, events));
        finish_all(events);
        for (hsize_t k = starts[i]; k < starts[i] + count; k++) CHECK(found[k] == value_at(k, i + 2));
        CHECK(found[MANY / 4] == value_at(MANY / 4, 1));
        free(found);
    }
}

static hid_t virtual(hid_t file, const char *source) {
    const hsize_t many = MANY;
    hid_t space = H5Screate_simple(1, &many, NULL), list = H5Pcreate(H5P_DATASET_CREATE);
    OK(space);
    OK(list);
    OK(H5Pset_virtual(list, space, ".", source, space));
    hid_t dataset = create_dataset(file, "virtual", MANY, list);
    OK(H5Pclose(list));
    OK(H5Sclose(space));
    return dataset;
}

int main(void) {
    begin();
    int count = 0;
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(fapl);
    OK(H5Pset_object_flush_cb(fapl, flushed, &count));
    hid_t events = new_events(), file = H5Fcreate("a.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    hid_t list = chunked(MANY / 8);
    hid_t datasets[] = {create_dataset(file, "contiguous", MANY, H5P_DEFAULT),
                        create_dataset(file, "chunked", MANY, list), virtual(file, "contiguous")};
    int *these = values(MANY, 1);
    for (int i = 0; i < 3; i++) {
        OK(write_whole(datasets[i], these));
        read_after_writes(datasets[i], events);
    }
    CHECK(count == 0);
    for (int i = 0; i < 3; i++) OK(H5Dclose(datasets[i]));
    close_events(events);
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    OK(H5Pclose(fapl));
    free(these);
    return 0;
}
