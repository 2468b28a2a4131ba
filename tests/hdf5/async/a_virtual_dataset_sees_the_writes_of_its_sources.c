#include "events.h"

enum { SOURCES = 2 };

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), sources[SOURCES];
    const char *names[SOURCES] = {"a", "b"};
    const hsize_t count = MANY;
    hid_t whole = H5Screate_simple(1, &count, NULL);
    for (int i = 0; i < SOURCES; i++) {
        sources[i] = create_dataset(file, names[i], MANY, H5P_DEFAULT);
        hid_t part = slab(SOURCES * MANY, i * MANY, MANY);
        OK(H5Pset_virtual(list, part, ".", names[i], whole));
        OK(H5Sclose(part));
    }
    hid_t all = create_dataset(file, "all", SOURCES * MANY, list);
    int *these = values(SOURCES * MANY, 1);
    void *memory = new_memory_with(these, SOURCES * MANY * sizeof(int));
    void *again = new_memory(SOURCES * MANY * sizeof(int));
    write_and_hold(sources[0], memory, events);
    OK(write_later(sources[1], (int *)memory + MANY, events));
    let_go_on_soon();
    OK(read_later(all, again, events));
    finish_all(events);
    CHECK(memory_has_values(again, SOURCES * MANY, 1));

    /* And the sources those of the virtual dataset. */
    int *others = values(SOURCES * MANY, 2);
    copy_memory(memory, others, SOURCES * MANY * sizeof(int));
    OK(write_later(all, memory, events));
    OK(read_later(sources[1], again, events));
    finish_all(events);
    CHECK(memory_holds(again, others + MANY, MANY * sizeof(int)));

    close_events(events);
    for (int i = 0; i < SOURCES; i++) OK(H5Dclose(sources[i]));
    OK(H5Dclose(all));
    OK(H5Pclose(list));
    OK(H5Sclose(whole));
    OK(H5Fclose(file));
    free_memory(memory);
    free_memory(again);
    free(these);
    free(others);
    return 0;
}
