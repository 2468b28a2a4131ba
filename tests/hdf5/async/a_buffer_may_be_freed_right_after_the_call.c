#include "events.h"

/* As AMReX does, or overwritten for the next step. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t freed = create_dataset(file, "freed", MANY, H5P_DEFAULT);
    hid_t overwritten = create_dataset(file, "overwritten", MANY, H5P_DEFAULT);
    const size_t bytes = MANY * sizeof(int);
    int *one = values(MANY, 1), *two = values(MANY, 2), *other = values(MANY, 3);
    void *first = new_memory_with(one, bytes), *second = new_memory_with(two, bytes);

    write_and_hold(freed, first, events);
    OK(write_later(overwritten, second, events));
    copy_memory(first, other, bytes);
    free_memory(first);
    copy_memory(second, other, bytes);
    release_held();
    finish_all(events);
    CHECK(has_values(file, "freed", MANY, 1));
    CHECK(has_values(file, "overwritten", MANY, 2));
    CHECK(memory_has_values(second, MANY, 3));

    close_events(events);
    OK(H5Dclose(freed));
    OK(H5Dclose(overwritten));
    OK(H5Fclose(file));
    free_memory(second);
    return 0;
}
