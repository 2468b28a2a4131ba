#include "events.h"

enum { ELEMENTS = 1000000, SOME = 16, TIMES = 500 };

/* They leave nothing in the event set, and HDF5 has them. */
static void check(hid_t file, const char *name, hid_t dcpl) {
    hid_t dataset = create_dataset(file, name, ELEMENTS, dcpl), events = new_events();
    int *these = values(TIMES * SOME, 1), *found = allocate(TIMES * SOME * sizeof(int));
    hid_t of_memory = slab(SOME, 0, SOME);
    for (hsize_t at = 0; at < TIMES * SOME; at += SOME) {
        hid_t of_file = slab(ELEMENTS, at, SOME);
        int buffer[SOME];
        memcpy(buffer, these + at, sizeof buffer);
        OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, of_memory, of_file, H5P_DEFAULT, buffer,
                          events));
        memset(buffer, 0, sizeof buffer);
        CHECK(count_of(events) == 0);
        OK(H5Dread_async(dataset, H5T_NATIVE_INT, of_memory, of_file, H5P_DEFAULT, found + at,
                         events));
        CHECK(count_of(events) == 0);
        CHECK(memcmp(found + at, these + at, sizeof buffer) == 0);
        OK(H5Sclose(of_file));
    }
    OK(H5Dclose_async(dataset, events));
    CHECK(count_of(events) == 0);
    close_events(events);
    OK(H5Sclose(of_memory));

    dataset = H5Dopen2(file, name, H5P_DEFAULT);
    OK(dataset);
    hid_t of_file = slab(ELEMENTS, 0, TIMES * SOME), all = slab(TIMES * SOME, 0, TIMES * SOME);
    OK(H5Dread(dataset, H5T_NATIVE_INT, all, of_file, H5P_DEFAULT, found));
    CHECK(memcmp(found, these, TIMES * SOME * sizeof(int)) == 0);
    OK(H5Sclose(of_file));
    OK(H5Sclose(all));
    OK(H5Dclose(dataset));
    free(these);
    free(found);
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), dcpl = chunked(SOME * 10);
    check(file, "contiguous", H5P_DEFAULT);
    check(file, "chunked", dcpl);
    OK(H5Pset_deflate(dcpl, 1));
    check(file, "compressed", dcpl);
    OK(H5Pclose(dcpl));
    OK(H5Fclose(file));
    return 0;
}
