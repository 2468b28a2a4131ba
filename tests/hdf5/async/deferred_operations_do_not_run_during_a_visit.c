/* HDF5 cannot flush a file while it calls a function for each of its links. What such a function does
 * leaves a flush alone that is yet to be done, even if it waits for it without limit. */
#include "events.h"

static hid_t events, others;

static herr_t visit(hid_t group, const char *name, const H5L_info2_t *info, void *count) {
    (void)info;
    size_t left;
    hbool_t failed;
    OK(H5ESwait(events, 0, &left, &failed));
    CHECK(!failed);
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(!failed);
    CHECK(left == 1);
    hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT);
    OK(dataset);
    int *these = values(MANY, 2);
    OK(write_later(dataset, these, others));
    OK(read_whole(dataset, these));
    OK(H5Dclose(dataset));
    free(these);
    ++*(int *)count;
    return 0;
}

int main(void) {
    begin();
    events = new_events();
    others = new_events();
    hid_t file = make_file("visit.h5");
    int *these = values(MANY, 1);
    put_values(file, "one", MANY, 1);
    put_values(file, "two", MANY, 1);
    hid_t dataset = H5Dopen2(file, "one", H5P_DEFAULT);
    OK(dataset);

    write_and_hold(dataset, these, events);
    OK(H5Fflush_async(file, H5F_SCOPE_GLOBAL, events));
    CHECK(count_of(events) == 2);
    release_held();
    usleep(100000);
    int count = 0;
    OK(H5Lvisit2(file, H5_INDEX_NAME, H5_ITER_INC, visit, &count));
    CHECK(count == 2);
    close_events(events);
    close_events(others);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("visit.h5", "one", MANY, 2));
    CHECK(file_has_values("visit.h5", "two", MANY, 2));
    free(these);
    return 0;
}
