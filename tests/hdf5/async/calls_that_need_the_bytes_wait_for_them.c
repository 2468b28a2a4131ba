#include "events.h"

/* Each of these comes while a write is held, and finds it done. Another process reads the file, to
 * which nothing of this one's memory is known. */
static const char *program;

static hid_t write_held(hid_t dataset, int seed, hid_t events) {
    int *these = values(MANY, seed);
    write_and_hold(dataset, these, events);
    free(these);
    let_go_on_soon();
    return dataset;
}

static void check_file(int seed) {
    char role[16];
    snprintf(role, sizeof role, "%d", seed);
    CHECK(run(program, role) == 0);
}

static void look(int seed) {
    CHECK(setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1) == 0);
    begin();
    CHECK(file_has_values("file.h5", "x", MANY, seed));
    exit(0);
}

int main(int argc, char **argv) {
    if (argc > 1) look(atoi(argv[1]));
    program = argv[0];
    begin();
    hid_t file = make_file("file.h5"), dcpl = chunked(MANY / 4);
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT), events = new_events();

    write_held(dataset, 1, events);
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    check_file(1);

    write_held(dataset, 2, events);
    OK(H5Dflush(dataset));
    check_file(2);

    write_held(dataset, 3, events);
    OK(H5Fflush_async(file, H5F_SCOPE_GLOBAL, events));
    finish_all(events);
    check_file(3);

    write_held(dataset, 4, events);
    OK(H5Ocopy(file, "x", file, "copy", H5P_DEFAULT, H5P_DEFAULT));
    CHECK(has_values(file, "copy", MANY, 4));

    write_held(dataset, 5, events);
    OK(H5Dclose(dataset));
    OK(H5Ldelete(file, "copy", H5P_DEFAULT));
    OK(H5Fclose(file));
    check_file(5);
    close_events(events);
    OK(H5Pclose(dcpl));
    return 0;
}
