#include "events.h"

int main(void) {
    CHECK(setenv("HDF5_ASYNC_EXE_FCLOSE", "1", 1) == 0);
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);
    void *memory = new_memory_with(these, MANY * sizeof(int));
    void *again = new_memory(MANY * sizeof(int));
    OK(write_later(dataset, memory, events));
    OK(read_later(dataset, again, events));
    finish_all(events);
    CHECK(memory_has_values(again, MANY, 1));
    /* What is canceled before it begins never happens. */
    int *others = values(MANY, 2);
    copy_memory(memory, others, MANY * sizeof(int));
    OK(write_later(dataset, memory, events));
    size_t not_canceled = 1;
    hbool_t failed = true;
    OK(H5EScancel(events, &not_canceled, &failed));
    CHECK(not_canceled == 0 && !failed);
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "x", MANY, 1));
    free_memory(memory);
    free_memory(again);
    free(these);
    free(others);
    return 0;
}
