#include "events.h"

/* With an early allocation, so that the place of the failure is known. */
static void check(int error, const char *name) {
    hid_t file = make_file("file.h5"), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t dataset = create_dataset(file, "x", MANY, dcpl), events = new_events();
    int *these = values(MANY, 1);
    void *memory = new_memory_with(these, MANY * sizeof(int));
    fail_at((off_t)(H5Dget_offset(dataset) + MANY * sizeof(int) / 2), error);
    OK(write_later(dataset, memory, events));
    const char *text = failure_of(events, "H5Dwrite_async");
    CHECK_SAYS(text, "file.h5");
    CHECK_SAYS(text, "offset");
    CHECK_SAYS(text, name);
    OK(H5ESclose(events));

    /* The dataset is as usable as before. */
    fail_no_more();
    events = new_events();
    OK(write_later(dataset, memory, events));
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "x", MANY, 1));
    OK(H5Pclose(dcpl));
    free_memory(memory);
    free(these);
}

int main(void) {
    begin();
    check(ENOSPC, "No space left on device");
    check(EIO, "Input/output error");
    return 0;
}
