#include "events.h"

int main(void) {
    CHECK(setenv("HDF5_ASYNC_MAX_MEM_MB", "3", 1) == 0);
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);
    void *memory = new_memory_with(these, MANY * sizeof(int));
    OK(write_later(dataset, memory, events));
    CHECK(count_of(events) == 0);
    free_memory(memory);
    CHECK(has_values(file, "x", MANY, 1));
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(these);
    return 0;
}
