#include "events.h"

/* With vol-async's variables, nothing is written before the dataset, its group or its file is
 * closed, or waited for. The write comes without a copy of the caller's staying as it is. */
static void check(const char *variable) {
    CHECK(setenv(variable, "1", 1) == 0);
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t group = H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(group);
    hid_t dataset = create_dataset(group, "x", MANY, H5P_DEFAULT);
    const size_t bytes = MANY * sizeof(int);
    int *these = values(MANY, 1), *others = values(MANY, 2);
    void *memory = new_memory_with(these, bytes);
    OK(write_later(dataset, memory, events));
    copy_memory(memory, others, bytes);
    const unsigned long before = calls;
    usleep(50000);
    CHECK(calls == before);
    CHECK(count_of(events) == 1);
    OK(H5Dclose_async(dataset, events));
    OK(H5Gclose_async(group, events));
    OK(H5Fclose_async(file, events));
    for (int waited = 0; calls == before; waited++) {
        CHECK(waited < 10000);
        usleep(1000);
    }
    close_events(events);
    CHECK(file_has_values("file.h5", "group/x", MANY, 1));
    CHECK(unsetenv(variable) == 0);
    free_memory(memory);
    free(these);
    free(others);
}

int main(void) {
    begin();
    check("HDF5_ASYNC_EXE_FCLOSE");
    check("HDF5_ASYNC_EXE_GCLOSE");
    check("HDF5_ASYNC_EXE_DCLOSE");
    return 0;
}
