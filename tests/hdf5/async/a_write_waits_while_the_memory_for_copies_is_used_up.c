#include "events.h"

/* Three times 4 MiB, of which the limit allows one at a time. */
int main(void) {
    begin_with("max_mem_mb=5");
    hid_t file = make_file("file.h5"), events = new_events(), datasets[3];
    const size_t bytes = MANY * sizeof(int);
    void *memory = new_memory(bytes);
    const char *names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) datasets[i] = create_dataset(file, names[i], MANY, H5P_DEFAULT);
    hold();
    for (int i = 0; i < 3; i++) {
        int *these = values(MANY, i);
        copy_memory(memory, these, bytes);
        if (i == 1) let_go_on_soon();
        OK(write_later(datasets[i], memory, events));
        free(these);
    }
    finish_all(events);
    for (int i = 0; i < 3; i++) {
        CHECK(has_values(file, names[i], MANY, i));
        OK(H5Dclose(datasets[i]));
    }
    close_events(events);
    OK(H5Fclose(file));
    free_memory(memory);
    return 0;
}
