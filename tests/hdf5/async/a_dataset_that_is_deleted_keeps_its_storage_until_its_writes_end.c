#include "events.h"

/* Else the next dataset would get that storage, and the write that is late would spoil it. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events(), early = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(early, H5D_ALLOC_TIME_EARLY));
    hid_t deleted = create_dataset(file, "deleted", MANY, early);
    int *one = values(MANY, 1), *two = values(MANY, 2);
    write_and_hold(deleted, one, events);
    OK(H5Dclose_async(deleted, events));
    OK(H5Ldelete(file, "deleted", H5P_DEFAULT));
    hid_t next = create_dataset(file, "next", MANY, early);
    OK(write_whole(next, two));
    release_held();
    finish_all(events);
    CHECK(has_values(file, "next", MANY, 2));
    close_events(events);
    OK(H5Dclose(next));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "next", MANY, 2));
    OK(H5Pclose(early));
    free(one);
    free(two);
    return 0;
}
