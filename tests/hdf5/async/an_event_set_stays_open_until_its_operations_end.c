#include "events.h"

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);
    write_and_hold(dataset, these, events);
    free(these);
    CHECK(H5ESclose(events) < 0);
    CHECK(count_of(events) == 1);
    release_held();
    close_events(events);
    CHECK(has_values(file, "x", MANY, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    return 0;
}
