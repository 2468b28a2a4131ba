#include "events.h"

/* By H5Freopen and by a second H5Fopen; and a strong close of one of them does not cut off the other. */
static void check(hid_t file, hid_t second, int seed) {
    hid_t events = new_events();
    hid_t one = H5Dopen2(file, "x", H5P_DEFAULT), two = H5Dopen2(second, "x", H5P_DEFAULT);
    OK(one);
    OK(two);
    int *these = values(MANY, seed), *others = values(MANY, seed + 1);
    void *memory = new_memory_with(these, MANY * sizeof(int));
    void *again = new_memory(MANY * sizeof(int));
    write_and_hold(one, memory, events);
    let_go_on_soon();
    OK(read_later(two, again, events));
    finish_all(events);
    CHECK(memory_has_values(again, MANY, seed));
    OK(write_later(one, memory, events));
    copy_memory(memory, others, MANY * sizeof(int));
    OK(write_later(two, memory, events));
    OK(H5Dclose_async(two, events));
    OK(H5Fclose_async(second, events));
    finish_all(events);
    CHECK(has_values(file, "x", MANY, seed + 1));
    close_events(events);
    OK(H5Dclose(one));
    free_memory(memory);
    free_memory(again);
    free(these);
    free(others);
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5");
    put_values(file, "x", MANY, 0);
    check(file, H5Freopen(file), 1);
    check(file, H5Fopen("file.h5", H5F_ACC_RDWR, H5P_DEFAULT), 3);
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "x", MANY, 4));
    return 0;
}
