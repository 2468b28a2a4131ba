#include "events.h"

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);
    void *memory = new_memory_with(these, MANY * sizeof(int));
    void *again = new_memory(MANY * sizeof(int));
    most_bytes = 50000;
    OK(write_later(dataset, memory, events));
    OK(read_later(dataset, again, events));
    finish_all(events);
    most_bytes = 0;
    CHECK(memory_has_values(again, MANY, 1));
    CHECK(has_values(file, "x", MANY, 1));
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(memory);
    free_memory(again);
    free(these);
    return 0;
}
