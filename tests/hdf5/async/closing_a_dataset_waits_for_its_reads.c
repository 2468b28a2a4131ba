#include "events.h"

/* Also where plain calls may go on: the program looks at the buffer after it. */
int main(void) {
    begin_with("implicit=1");
    hid_t file = make_file("file.h5"), events = new_events();
    put_values(file, "x", MANY, 1);
    OK(H5Fflush(file, H5F_SCOPE_LOCAL));
    hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(dataset);
    void *memory = new_memory(MANY * sizeof(int));
    hold();
    OK(read_later(dataset, memory, events));
    wait_for_held_call();
    let_go_on_soon();
    OK(H5Dclose(dataset));
    CHECK(memory_has_values(memory, MANY, 1));
    close_events(events);
    OK(H5Fclose(file));
    free_memory(memory);
    return 0;
}
