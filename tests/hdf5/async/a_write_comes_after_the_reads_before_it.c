#include "events.h"

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    put_values(file, "x", MANY, 1);
    OK(H5Fclose(file));
    file = H5Fopen("file.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    OK(file);
    hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    int *these = values(MANY, 2);
    void *memory = new_memory_with(these, MANY * sizeof(int));
    void *found = new_memory(MANY * sizeof(int));
    hold();
    OK(read_later(dataset, found, events));
    CHECK(count_of(events) == 1);
    wait_for_held_call();
    let_go_on_soon();
    OK(write_later(dataset, memory, events));
    close_events(events);
    CHECK(memory_has_values(found, MANY, 1));
    CHECK(has_values(file, "x", MANY, 2));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(memory);
    free_memory(found);
    free(these);
    return 0;
}
