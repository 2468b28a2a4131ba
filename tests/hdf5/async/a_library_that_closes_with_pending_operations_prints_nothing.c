#include "events.h"

/* HDF5 prints its messages here, as it does for a program that leaves that as it is. */
static void leave(const char *how) {
    bool fails = strcmp(how, "fails") == 0;
    hid_t file = make_file("file.h5"), events = new_events(), more = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);
    OK(write_later(dataset, these, events));
    if (fails) fail_at((off_t)(H5Dget_offset(dataset) + MANY * sizeof(int) / 2), EIO);
    OK(write_later(dataset, these, more));
    OK(write_later(dataset, these, events));
    OK(H5Dclose_async(dataset, events));
    free(these);
    if (strcmp(how, "H5close") == 0) OK(H5close());
    exit(0);
}

/* The harness sees that nothing is printed. */
int main(int argc, char **argv) {
    if (argc > 1) leave(argv[1]);
    CHECK(run(argv[0], "exits") == 0);
    CHECK(file_has_values("file.h5", "x", MANY, 1));
    CHECK(run(argv[0], "H5close") == 0);
    CHECK(file_has_values("file.h5", "x", MANY, 1));
    CHECK(run(argv[0], "fails") == 0);
    return 0;
}
