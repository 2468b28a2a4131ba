#include "events.h"

/* What the buffer holds when the write is let go on is what the file gets. */
int main(void) {
    begin_with("copy=never");
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1), *others = values(MANY, 2);
    write_and_hold(dataset, these, events);
    memcpy(these, others, MANY * sizeof(int));
    release_held();
    close_events(events);
    CHECK(has_values(file, "x", MANY, 2));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(these);
    free(others);
    return 0;
}
