#include "events.h"

#include <sys/resource.h>

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1), *found = allocate(MANY * sizeof *found);

    /* No descriptor is left. */
    int next = open("/dev/null", O_RDONLY);
    CHECK(next >= 0);
    CHECK(close(next) == 0);
    struct rlimit old, low;
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    low = old;
    low.rlim_cur = (rlim_t)next;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    OK(write_later(dataset, these, events));
    OK(read_later(dataset, found, events));
    CHECK(count_of(events) == 0);
    CHECK(memcmp(found, these, MANY * sizeof *these) == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);

    OK(write_later(dataset, these, events));
    CHECK(count_of(events) == 1);
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "x", MANY, 1));
    free(these);
    free(found);
    return 0;
}
