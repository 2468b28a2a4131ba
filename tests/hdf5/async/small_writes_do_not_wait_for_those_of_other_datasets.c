#include "events.h"

enum { SOME = 100 };

/* While a write is held, small ones elsewhere are complete when they return; those of the same dataset,
 * and its close, stay in the event set. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t large = create_dataset(file, "large", MANY, H5P_DEFAULT);
    hid_t small = create_dataset(file, "small", SOME, H5P_DEFAULT);
    int *these = values(MANY, 1), *found = allocate(SOME * sizeof(int));
    write_and_hold(large, these, events);

    OK(write_later(small, these, events));
    OK(read_later(small, found, events));
    CHECK(count_of(events) == 1);
    CHECK(memcmp(found, these, SOME * sizeof(int)) == 0);
    OK(H5Dclose_async(small, events));
    CHECK(count_of(events) == 1);
    OK(H5Dclose_async(large, events));
    OK(H5Fclose_async(file, events));
    CHECK(count_of(events) == 3);

    release_held();
    close_events(events);
    CHECK(file_has_values("file.h5", "large", MANY, 1));
    CHECK(file_has_values("file.h5", "small", SOME, 1));
    free(these);
    free(found);
    return 0;
}
