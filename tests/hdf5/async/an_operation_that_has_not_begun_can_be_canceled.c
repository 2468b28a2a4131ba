#include "events.h"

/* A conflict keeps the second write from beginning; neither it nor the first, which has begun, may
 * do harm to the file. */
int main(void) {
    begin_with("threads=1");
    hid_t file = make_file("file.h5"), events = new_events();
    put_values(file, "before", MANY, 1);
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 2);
    void *memory = new_memory_with(these, MANY * sizeof(int));
    write_and_hold(dataset, memory, events);
    size_t not_canceled = 2;
    hbool_t failed = true;
    OK(H5EScancel(events, &not_canceled, &failed));
    CHECK(!failed);
    CHECK(not_canceled == count_of(events));
    release_held();
    size_t left;
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(!failed && left == 0);
    OK(H5ESclose(events));

    events = new_events();
    OK(write_later(dataset, memory, events));
    close_events(events);
    CHECK(has_values(file, "before", MANY, 1));
    CHECK(has_values(file, "x", MANY, 2));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(memory);
    free(these);
    return 0;
}
