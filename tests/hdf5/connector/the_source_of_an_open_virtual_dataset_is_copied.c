/* HDF5 (1.14.4, 2.0.0, 2.2.0) copies chunks of its cache into a buffer that may be shorter than a chunk, also those of
 * datasets that only an open virtual dataset keeps open, without an identifier. */
#include "objects.h"

enum { COUNT = 1 << 16, CHUNK = 1 << 13 };

static void make_source(hid_t file, const int *these) {
    const hsize_t chunk = CHUNK;
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    OK(list);
    OK(H5Pset_chunk(list, 1, &chunk));
    OK(H5Pset_scaleoffset(list, H5Z_SO_INT, H5Z_SO_INT_MINBITS_DEFAULT));
    hid_t dataset = create_dataset(file, "x", COUNT, list);
    OK(write_whole(dataset, these));
    OK(H5Dclose(dataset));
    OK(H5Pclose(list));
}

static hid_t make_virtual(hid_t file, const char *source) {
    const hsize_t count = COUNT;
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &count, NULL);
    OK(list);
    OK(space);
    OK(H5Pset_virtual(list, space, source, "x", space));
    hid_t dataset = create_dataset(file, "v", COUNT, list);
    OK(H5Sclose(space));
    OK(H5Pclose(list));
    return dataset;
}

static void check_copy(hid_t file, const char *name, const int *these) {
    int *found = allocate(COUNT * sizeof *found);
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    OK(dataset);
    OK(read_whole(dataset, found));
    CHECK(memcmp(found, these, COUNT * sizeof *found) == 0);
    OK(H5Dclose(dataset));
    free(found);
}

int main(void) {
    begin();
    int *these = allocate(COUNT * sizeof *these), *found = allocate(COUNT * sizeof *found);
    hid_t file = make_file("a.h5"), other = make_file("b.h5");
    memset(these, 0, COUNT * sizeof *these);
    make_source(file, these);
    hid_t places[] = {file, other};
    for (int i = 0; i < 2; i++) {
        hid_t whole = make_virtual(places[i], i == 0 ? "." : "a.h5");
        for (int at = 10; at < COUNT; at += CHUNK) these[at] = i + 1;
        OK(write_whole(whole, these));
        OK(read_whole(whole, found));
        char name[16];
        snprintf(name, sizeof name, "copy%d", i);
        OK(H5Ocopy(file, "x", file, name, H5P_DEFAULT, H5P_DEFAULT));
        check_copy(file, name, these);
        OK(H5Dclose(whole));
    }
    OK(H5Fclose(other));
    OK(H5Fclose(file));
    free(found);
    free(these);
    return 0;
}
