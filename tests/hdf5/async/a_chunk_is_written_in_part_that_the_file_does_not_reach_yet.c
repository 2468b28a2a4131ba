#include "events.h"

/* Storage that was given out before anything was written, and is never filled. */
enum { COUNT = 1000, FROM = 50, SOME = 800 };

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events(), list = chunked(100);
    OK(H5Pset_fill_value(list, H5T_NATIVE_INT, NULL));
    OK(H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY));
    hid_t dataset = create_dataset(file, "data", COUNT, list), part = slab(COUNT, FROM, SOME);
    int *these = values(COUNT, 1), *found = allocate(COUNT * sizeof *found);
    void *memory = new_memory_with(these, COUNT * sizeof *these);
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, part, part, H5P_DEFAULT, memory, events));
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));

    file = look_at_file("file.h5");
    dataset = H5Dopen2(file, "data", H5P_DEFAULT);
    OK(read_whole(dataset, found));
    CHECK(memcmp(found + FROM, these + FROM, SOME * sizeof *found) == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Sclose(part));
    OK(H5Pclose(list));
    free_memory(memory);
    free(found);
    free(these);
    return 0;
}
