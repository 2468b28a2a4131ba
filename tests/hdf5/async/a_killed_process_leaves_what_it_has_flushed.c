#include "events.h"

#include <signal.h>

static void be_killed(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t flushed = create_dataset(file, "flushed", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);
    OK(write_later(flushed, these, events));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    hid_t other = create_dataset(file, "other", MANY, H5P_DEFAULT), more = new_events();
    write_and_hold(other, these, more);
    raise(SIGKILL);
}

int main(int argc, char **argv) {
    if (argc > 1) be_killed();
    begin();
    CHECK(run(argv[0], "be killed") == 128 + SIGKILL);
    CHECK(file_has_values("file.h5", "flushed", MANY, 1));
    hid_t file = H5Fopen("file.h5", H5F_ACC_RDWR, H5P_DEFAULT);
    OK(file);
    put_values(file, "after", MANY, 2);
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "after", MANY, 2));
    return 0;
}
