#include "events.h"

int main(void) {
    begin_with("copy=never");
    need_standin();
    hid_t file = make_file("file.h5"), dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);
    void *memory = device_memory(MANY * sizeof(int));
    copy_memory(memory, these, MANY * sizeof(int));
    OK(write_whole(dataset, these));

    CHECK(setenv("CUDASIM_FAIL", "copy:*", 1) == 0);
    hid_t events = new_events();
    OK(write_later(dataset, memory, events));
    CHECK_SAYS(failure_of(events, "H5Dwrite_async"), "CUDA_ERROR");
    OK(H5ESclose(events));
    events = new_events();
    OK(read_later(dataset, memory, events));
    CHECK_SAYS(failure_of(events, "H5Dread_async"), "CUDA_ERROR");
    OK(H5ESclose(events));

    CHECK(unsetenv("CUDASIM_FAIL") == 0);
    events = new_events();
    OK(write_later(dataset, memory, events));
    OK(read_later(dataset, memory, events));
    close_events(events);
    CHECK(memory_has_values(memory, MANY, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "x", MANY, 1));
    free_device_memory(memory);
    free(these);
    return 0;
}
