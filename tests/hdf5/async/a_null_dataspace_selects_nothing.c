#include "events.h"

/* As by HDF5 alone. */
static void check(hid_t dataset, hid_t memory, hid_t file, bool is_allowed, hid_t events) {
    const hid_t type = H5T_NATIVE_INT, list = H5P_DEFAULT;
    int one = 42, found = -1;
    CHECK((H5Dwrite_async(dataset, type, memory, file, list, &one, events) >= 0) == is_allowed);
    CHECK((H5Dread_async(dataset, type, memory, file, list, &found, events) >= 0) == is_allowed);
    if (events != H5ES_NONE) finish_all(events);
    CHECK(found == -1);
}

static void check_all(hid_t file, hid_t events) {
    hsize_t zero = 0;
    hid_t null = H5Screate(H5S_NULL), scalar = H5Screate(H5S_SCALAR);
    hid_t empty = H5Screate_simple(1, &zero, NULL);
    hid_t one = H5Dopen2(file, "scalar", H5P_DEFAULT), none = H5Dopen2(file, "null", H5P_DEFAULT);
    hid_t no_more = H5Dopen2(file, "empty", H5P_DEFAULT);
    OK(one);
    OK(none);
    OK(no_more);
    check(one, null, H5S_ALL, false, events);
    check(one, null, scalar, false, events);
    check(no_more, null, H5S_ALL, true, events);
    check(no_more, null, empty, true, events);
    check(none, null, H5S_ALL, true, events);
    check(none, null, null, true, events);
    check(none, H5S_ALL, H5S_ALL, true, events);
    check(none, scalar, H5S_ALL, false, events);
    check(none, empty, H5S_ALL, true, events);
    OK(H5Dclose(one));
    OK(H5Dclose(none));
    OK(H5Dclose(no_more));
    OK(H5Sclose(null));
    OK(H5Sclose(scalar));
    OK(H5Sclose(empty));
}

static void create(hid_t file, const char *name, hid_t space) {
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    hid_t dataset =
        H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    OK(H5Dclose(dataset));
    OK(H5Pclose(dcpl));
}

int main(void) {
    begin_with("small=0");
    hid_t file = make_file("file.h5"), events = new_events();
    hsize_t zero = 0;
    create(file, "scalar", H5Screate(H5S_SCALAR));
    create(file, "null", H5Screate(H5S_NULL));
    create(file, "empty", H5Screate_simple(1, &zero, NULL));
    check_all(file, H5ES_NONE);
    check_all(file, events);
    OK(H5Fclose(file));
    file = look_at_file("file.h5");
    hid_t dataset = H5Dopen2(file, "scalar", H5P_DEFAULT);
    int found = -1;
    OK(read_whole(dataset, &found));
    CHECK(found == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    close_events(events);
    return 0;
}
