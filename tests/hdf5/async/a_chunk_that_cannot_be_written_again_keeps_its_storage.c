#include "events.h"

enum { CHUNK = 30000, CHUNKS = 4, COUNT = CHUNKS * CHUNK };

/* A chunk whose first elements differ, and which takes the more bytes in the file the more do. */
static void fill(int *chunk, int differing, int seed) {
    for (int i = 0; i < CHUNK; i++) chunk[i] = i < differing ? value_at((size_t)i * 7, seed) : 0;
}

static herr_t write_chunk(hid_t dataset, int number, const int *all, hid_t events) {
    hid_t part = slab(COUNT, (hsize_t)number * CHUNK, CHUNK);
    herr_t status =
        H5Dwrite_async(dataset, H5T_NATIVE_INT, part, part, H5P_DEFAULT, all, events);
    OK(H5Sclose(part));
    return status;
}

static void write_and_wait(hid_t dataset, int number, const int *all) {
    hid_t events = new_events();
    OK(write_chunk(dataset, number, all, events));
    close_events(events);
}

/* HDF5 has freed the storage of the chunk when its write fails, and the index still has it. */
int main(void) {
    begin_with("threads=1");
    if (H5Zfilter_avail(H5Z_FILTER_DEFLATE) <= 0) skip("HDF5 has no gzip");
    int *all = allocate(COUNT * sizeof *all), *found = allocate(COUNT * sizeof *found);
    hid_t file = make_file("file.h5"), list = chunked(CHUNK);
    OK(H5Pset_deflate(list, 4));
    hid_t dataset = create_dataset(file, "x", COUNT, list);
    fill(all, CHUNK / 4, 1);
    fill(all + 3 * CHUNK, CHUNK / 4, 2);
    write_and_wait(dataset, 0, all);
    write_and_wait(dataset, 3, all);
    OK(H5Fflush(file, H5F_SCOPE_LOCAL));

    fill(all, CHUNK, 3);
    fail_at(size_of_file("file.h5") + CHUNK, EIO);
    hid_t events = new_events();
    OK(write_chunk(dataset, 0, all, events));
    CHECK_SAYS(failure_of(events, "H5Dwrite_async"), "write the chunk");
    OK(H5ESclose(events));
    fail_no_more();

    /* Each fits into what the first chunk had. */
    fill(all + CHUNK, CHUNK / 5, 4);
    write_and_wait(dataset, 1, all);
    write_and_wait(dataset, 0, all);
    fill(all + 2 * CHUNK, CHUNK / 6, 5);
    write_and_wait(dataset, 2, all);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));

    file = look_at_file("file.h5");
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(dataset);
    OK(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
    CHECK(memcmp(found, all, COUNT * sizeof *all) == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    free(found);
    free(all);
    return 0;
}
