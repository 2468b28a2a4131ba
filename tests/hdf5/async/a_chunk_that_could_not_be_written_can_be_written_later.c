#include "events.h"

enum { CHUNK = 30000, COUNT = 4 * CHUNK };

/* HDF5 has allocated storage for the chunk when its write fails, and has not put it into the index. */
int main(void) {
    begin_with("threads=1");
    int *these = values(COUNT, 1), *found = values(COUNT, 2);
    hid_t file = make_file("file.h5"), list = chunked(CHUNK);
    hid_t dataset = create_dataset(file, "x", COUNT, list);
    OK(H5Fflush(file, H5F_SCOPE_LOCAL));
    fail_at(CHUNK * 2, EIO);
    hid_t events = new_events(), part = slab(COUNT, 0, CHUNK / 2);
    OK(write_later(dataset, these, events));
    CHECK_SAYS(failure_of(events, "H5Dwrite_async"), "write the chunk");
    OK(H5ESclose(events));
    fail_no_more();
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, part, part, H5P_DEFAULT, these));
    OK(H5Sclose(part));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    file = look_at_file("file.h5");
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(dataset);
    OK(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
    CHECK(memcmp(found, these, CHUNK / 2 * sizeof *these) == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    free(found);
    free(these);
    return 0;
}
