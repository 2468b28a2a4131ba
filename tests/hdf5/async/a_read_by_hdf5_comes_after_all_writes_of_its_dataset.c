#include "events.h"

/* Without a fill value HDF5 reads nothing of a dataset, not even what is arbitrary, before it has
 * storage, which the pending chunks have yet to add. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events(), list = chunked(MANY / 8);
    OK(H5Pset_fill_value(list, H5T_NATIVE_INT, NULL));
    hid_t dataset = create_dataset(file, "x", MANY, list);
    hid_t first = slab(MANY, 0, MANY / 2), second = slab(MANY, MANY / 2, MANY / 2);
    int *these = values(MANY, 1), *found = allocate(MANY * sizeof *found);
    void *memory = new_memory_with(these, MANY * sizeof *these);
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, first, first, H5P_DEFAULT, memory, events));
    CHECK(count_of(events) == 1);
    OK(H5Dread(dataset, H5T_NATIVE_INT, second, second, H5P_DEFAULT, found));
    close_events(events);
    OK(H5Dread(dataset, H5T_NATIVE_INT, first, first, H5P_DEFAULT, found));
    CHECK(memcmp(found, these, MANY / 2 * sizeof *these) == 0);
    OK(H5Sclose(first));
    OK(H5Sclose(second));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    free_memory(memory);
    free(found);
    free(these);
    return 0;
}
