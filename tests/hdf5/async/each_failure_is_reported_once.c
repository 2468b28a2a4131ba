#include "events.h"

enum { DATASETS = 3 };

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events(), early = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(early, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(early, H5D_FILL_TIME_NEVER));
    const char *names[DATASETS] = {"a", "b", "c"};
    hid_t datasets[DATASETS];
    int *these = values(MANY, 1);
    for (int i = 0; i < DATASETS; i++) datasets[i] = create_dataset(file, names[i], MANY, early);
    fail_at((off_t)H5Dget_offset(datasets[1]) + 100000, EIO);
    for (int i = 0; i < DATASETS; i++) OK(write_later(datasets[i], these, events));
    CHECK_SAYS(failure_of(events, "H5Dwrite_async"), "Input/output error");
    size_t count = 1, left = 1;
    hbool_t failed = false;
    OK(H5ESget_err_count(events, &count));
    CHECK(count == 0);
    /* The others end well. */
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(left == 0);
    fail_no_more();
    OK(H5ESclose(events));
    CHECK(has_values(file, "a", MANY, 1));
    CHECK(has_values(file, "c", MANY, 1));
    for (int i = 0; i < DATASETS; i++) OK(H5Dclose(datasets[i]));
    OK(H5Fclose(file));
    OK(H5Pclose(early));
    free(these);
    return 0;
}
