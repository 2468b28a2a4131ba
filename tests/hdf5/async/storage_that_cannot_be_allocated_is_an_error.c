#include "events.h"

enum { ELEMENTS = 200000, FIRST = 10, SOME = 100 };

/* The error stack of the last write as text. */
static char error[8192];

/* Whether the call, or the event set if there is one, reports success. */
static bool writes(hid_t dataset, const void *from, bool has_events) {
    hid_t of_file = slab(ELEMENTS, FIRST, SOME), of_memory = slab(SOME, 0, SOME);
    hid_t events = has_events ? new_events() : H5ES_NONE;
    herr_t status = H5Dwrite_async(dataset, H5T_NATIVE_INT, of_memory, of_file, H5P_DEFAULT, from,
                                   events);
    bool succeeds = status >= 0;
    strcpy(error, error_text());
    if (has_events) {
        size_t left;
        hbool_t failed = false;
        OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
        succeeds = succeeds && !failed;
        OK(H5ESclose(events));
    }
    OK(H5Sclose(of_file));
    OK(H5Sclose(of_memory));
    return succeeds;
}

static bool has_what_was_written(hid_t dataset, int seed) {
    int *found = allocate(ELEMENTS * sizeof(int));
    OK(read_whole(dataset, found));
    bool has = true;
    for (int i = 0; i < ELEMENTS; i++) {
        bool is_written = FIRST <= i && i < FIRST + SOME;
        has = has && found[i] == (is_written ? value_at((size_t)(i - FIRST), seed) : 5);
    }
    free(found);
    return has;
}

static void check(const char *path, bool has_events) {
    hid_t file = make_file(path), dataset = filled_dataset(file, ELEMENTS);
    int *these = values(SOME, 1);
    void *memory = new_memory_with(these, SOME * sizeof(int));

    /* No space is left behind the first blocks. */
    fail_at(100000, ENOSPC);
    CHECK(!writes(dataset, memory, has_events));
    CHECK_SAYS(error, "No space left on device");
    CHECK(!writes(dataset, memory, has_events));

    /* When there is some again, HDF5 has lost the state that the storage has no fill values, and
     * that the file does not contain its address. */
    fail_no_more();
    CHECK(!writes(dataset, memory, has_events));
    CHECK_SAYS(error, "open it again");
    hid_t other = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(other);
    CHECK(!writes(other, memory, has_events));
    OK(H5Dclose(other));
    OK(H5Dclose(dataset));

    /* A dataset that is opened again can be written. */
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(dataset);
    CHECK(writes(dataset, memory, has_events));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    file = look_at_file(path);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(dataset);
    CHECK(has_what_was_written(dataset, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(memory);
    free(these);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        begin_with("implicit=1");
        check("implicit.h5", false);
        return 0;
    }
    begin();
    check("events.h5", true);
    /* Plain writes of host memory are HDF5's own. */
    if (is_on_device()) check("plain.h5", false);
    CHECK(run(argv[0], "implicit") == 0);
    return 0;
}
