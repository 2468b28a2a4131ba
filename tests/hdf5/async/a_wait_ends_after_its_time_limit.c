#include "events.h"

#include <time.h>

static double seconds(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);
    write_and_hold(dataset, these, events);
    const double began = seconds();
    size_t left = 0;
    hbool_t failed = true;
    OK(H5ESwait(events, 200000000, &left, &failed));
    const double took = seconds() - began;
    CHECK(left == 1 && !failed);
    CHECK(took >= 0.2 && took < 5);
    release_held();
    /* And no later than when there is nothing left to wait for. */
    OK(H5ESwait(events, 60000000000, &left, &failed));
    CHECK(left == 0 && !failed);
    CHECK(seconds() - began < 30);
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(these);
    return 0;
}
