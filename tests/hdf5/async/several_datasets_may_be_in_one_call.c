#include "events.h"

enum { DATASETS = 4 };

/* One event, and one failure if one of them fails. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events(), dcpl = chunked(9000);
    hid_t datasets[DATASETS], types[DATASETS], spaces[DATASETS];
    const void *from[DATASETS];
    void *to[DATASETS], *memory[DATASETS];
    for (int i = 0; i < DATASETS; i++) {
        char name[] = {'a' + i, 0};
        int *these = values(MANY, i);
        datasets[i] = create_dataset(file, name, MANY, i % 2 ? dcpl : H5P_DEFAULT);
        types[i] = H5T_NATIVE_INT;
        spaces[i] = H5S_ALL;
        from[i] = memory[i] = new_memory_with(these, MANY * sizeof(int));
        to[i] = new_memory(MANY * sizeof(int));
        free(these);
    }
    OK(H5Dwrite_multi_async(DATASETS, datasets, types, spaces, spaces, H5P_DEFAULT, from, events));
    CHECK(count_of(events) <= 1);
    OK(H5Dread_multi_async(DATASETS, datasets, types, spaces, spaces, H5P_DEFAULT, to, events));
    close_events(events);
    for (int i = 0; i < DATASETS; i++) CHECK(memory_has_values(to[i], MANY, i));

    events = new_events();
    fail_at((off_t)H5Dget_offset(datasets[2]) + 100000, EIO);
    OK(H5Dwrite_multi_async(DATASETS, datasets, types, spaces, spaces, H5P_DEFAULT, from, events));
    CHECK_SAYS(failure_of(events, "H5Dwrite_multi_async"), "Input/output error");
    OK(H5ESclose(events));
    fail_no_more();
    for (int i = 0; i < DATASETS; i++) {
        OK(H5Dclose(datasets[i]));
        free_memory(memory[i]);
        free_memory(to[i]);
    }
    OK(H5Fclose(file));
    OK(H5Pclose(dcpl));
    return 0;
}
