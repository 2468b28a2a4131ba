#include "events.h"

/* The child has the parent's operations in its memory, and none of the threads that carry them out. */
int main(void) {
    begin();
    hid_t file = make_file("parent.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);
    write_and_hold(dataset, these, events);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        release_held();
        hid_t own = make_file("child.h5"), others = new_events();
        put_values(own, "plain", MANY, 2);
        hid_t later = create_dataset(own, "later", MANY, H5P_DEFAULT);
        OK(write_later(later, these, others));
        close_events(others);
        OK(H5Dclose(later));
        CHECK(has_values(own, "plain", MANY, 2));
        OK(H5Fclose(own));
        _exit(0);
    }
    CHECK(finish(child) == 0);
    release_held();
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("parent.h5", "x", MANY, 1));
    CHECK(file_has_values("child.h5", "plain", MANY, 2));
    CHECK(file_has_values("child.h5", "later", MANY, 1));
    free(these);
    return 0;
}
