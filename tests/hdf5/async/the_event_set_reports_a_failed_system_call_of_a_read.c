#include "events.h"

int main(void) {
    begin();
    hid_t file = make_file("file.h5");
    put_values(file, "x", MANY, 1);
    OK(H5Fclose(file));

    file = look_at_file("file.h5");
    hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT), events = new_events();
    void *memory = new_memory(MANY * sizeof(int));
    fail_at((off_t)(H5Dget_offset(dataset) + MANY * sizeof(int) / 2), EIO);
    OK(read_later(dataset, memory, events));
    const char *text = failure_of(events, "H5Dread_async");
    CHECK_SAYS(text, "file.h5");
    CHECK_SAYS(text, "Input/output error");
    OK(H5ESclose(events));

    fail_no_more();
    events = new_events();
    OK(read_later(dataset, memory, events));
    close_events(events);
    CHECK(memory_has_values(memory, MANY, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(memory);
    return 0;
}
