#include "events.h"

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);
    write_and_hold(dataset, these, events);
    free(these);
    let_go_on_soon();
    OK(H5close());
    begin();
    CHECK(file_has_values("file.h5", "x", MANY, 1));

    /* It works once more. */
    file = make_file("again.h5");
    events = new_events();
    dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    these = values(MANY, 2);
    write_and_hold(dataset, these, events);
    release_held();
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("again.h5", "x", MANY, 2));
    free(these);
    return 0;
}
