#include "events.h"

enum { ELEMENTS = 100000, SOME = 1000 };

/* The number of operations of the event set for a write of `count` elements. */
static size_t operations(hid_t dataset, const int *from, hsize_t count, bool has_memory_space) {
    hid_t events = new_events(), space = slab(ELEMENTS, 0, count);
    hid_t memory_space = has_memory_space ? space : H5S_ALL;
    hold();
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, memory_space, space, H5P_DEFAULT, from, events));
    size_t are = count_of(events);
    release_held();
    close_events(events);
    OK(H5Sclose(space));
    return are;
}

static void check(const char *options, size_t few, size_t some, size_t all) {
    CHECK(H5close() >= 0);
    CHECK(setenv("HDF5_VOL_CONNECTOR", options, 1) == 0);
    begin();
    hid_t file = make_file("file.h5"), dataset = create_dataset(file, "x", ELEMENTS, H5P_DEFAULT);
    int *these = values(ELEMENTS, 1);
    OK(write_whole(dataset, these));
    CHECK(operations(dataset, these, 1, true) == few);
    CHECK(operations(dataset, these, SOME, false) == some);
    hid_t events = new_events();
    hold();
    OK(write_later(dataset, these, events));
    CHECK(count_of(events) == all);
    release_held();
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "x", ELEMENTS, 1));
    free(these);
}

int main(void) {
    char options[4096], given[4096];
    CHECK(getenv("HDF5_VOL_CONNECTOR") != NULL);
    snprintf(given, sizeof given, "%s", getenv("HDF5_VOL_CONNECTOR"));
    if (strstr(given, "{under_vol")) skip("the connector below has options of its own");
    struct {
        const char *option;
        size_t few, some, all;
    } cases[] = {
        {"", 0, 0, 1},
        {";small=0", 1, 1, 1},
        {";small=4000", 0, 1, 1},
        {";small=4001", 0, 0, 1},
        {";small=1MiB", 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(options, sizeof options, "%s%s", given, cases[i].option);
        check(options, cases[i].few, cases[i].some, cases[i].all);
    }
    return 0;
}
