#include "events.h"

enum { SETS = 5 };

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events[SETS], datasets[SETS];
    void *memory[SETS];
    for (int i = 0; i < SETS; i++) {
        char name[] = {'a' + i, 0};
        events[i] = new_events();
        datasets[i] = create_dataset(file, name, MANY, H5P_DEFAULT);
        int *these = values(MANY, i);
        memory[i] = new_memory_with(these, MANY * sizeof(int));
        free(these);
        OK(write_later(datasets[i], memory[i], events[i]));
    }
    const int order[SETS] = {3, 1, 4, 0, 2};
    for (int i = 0; i < SETS; i++) {
        char name[] = {'a' + order[i], 0};
        close_events(events[order[i]]);
        CHECK(has_values(file, name, MANY, order[i]));
    }
    for (int i = 0; i < SETS; i++) {
        OK(H5Dclose(datasets[i]));
        free_memory(memory[i]);
    }
    OK(H5Fclose(file));
    return 0;
}
