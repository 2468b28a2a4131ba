#include "events.h"

/* By a read with an event set, and by one without, each of which comes while the write is held. */
static void check(hid_t dataset, bool goes_on, int seed) {
    hid_t events = new_events();
    int *these = values(MANY, seed);
    void *memory = new_memory_with(these, MANY * sizeof(int));
    void *again = new_memory(MANY * sizeof(int));
    write_and_hold(dataset, memory, events);
    let_go_on_soon();
    if (goes_on) {
        OK(read_later(dataset, again, events));
        finish_all(events);
    } else {
        OK(read_whole(dataset, again));
    }
    CHECK(memory_has_values(again, MANY, seed));
    close_events(events);
    free_memory(memory);
    free_memory(again);
    free(these);
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    check(dataset, true, 1);
    check(dataset, false, 2);
    /* The dataset is the same one under another identifier. */
    hid_t another = H5Dopen2(file, "x", H5P_DEFAULT), events = new_events();
    int *these = values(MANY, 3), *found = allocate(MANY * sizeof(int));
    write_and_hold(dataset, these, events);
    let_go_on_soon();
    OK(read_whole(another, found));
    CHECK(memcmp(found, these, MANY * sizeof(int)) == 0);
    close_events(events);
    OK(H5Dclose(another));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(these);
    free(found);
    return 0;
}
