#include "ranks.h"

/* The extent of a dataset changes by a path through the mount, and other storage takes the place of its chunks. A write
 * by the handle of the mounted file does not go to the old place. */
enum { CHUNK = 1 << 16 };

static void write_and_finish(hid_t dataset, int seed, hid_t list, hid_t events) {
    int *mine = values(EACH, seed_of(rank, seed));
    write_part(dataset, mine, list, events);
    finish_all(events);
    barrier();
    free(mine);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t parent = create_shared("parent.h5"), child = create_shared("child.h5");
    hid_t list = transfer_list(false), chunks = chunked(CHUNK), events = new_events();
    OK(H5Pset_fill_time(chunks, H5D_FILL_TIME_NEVER));
    OK(H5Gclose(H5Gcreate2(parent, "m", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
    const hsize_t all = (hsize_t)EACH * ranks, most = H5S_UNLIMITED, less = CHUNK;
    hid_t space = H5Screate_simple(1, &all, &most);
    hid_t by_handle = H5Dcreate2(child, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, chunks, H5P_DEFAULT);
    OK(by_handle);
    OK(H5Fmount(parent, "m", child, H5P_DEFAULT));
    write_and_finish(by_handle, 1, list, events);
    hid_t by_path = H5Dopen2(parent, "/m/x", H5P_DEFAULT);
    OK(by_path);
    OK(H5Dset_extent(by_path, &less));
    hid_t other = H5Dcreate2(parent, "/m/other", H5T_NATIVE_INT, space, H5P_DEFAULT, chunks, H5P_DEFAULT);
    OK(other);
    OK(H5Dset_extent(by_path, &all));
    barrier();
    write_and_finish(other, 3, list, events);
    write_and_finish(by_handle, 2, list, events);
    OK(H5Dclose(by_handle));
    OK(H5Dclose(by_path));
    OK(H5Dclose(other));
    OK(H5Funmount(parent, "m"));
    OK(H5Fclose(child));
    OK(H5Fclose(parent));
    OK(H5Sclose(space));
    OK(H5Pclose(list));
    OK(H5Pclose(chunks));
    close_events(events);
    check_parts("child.h5", "x", 2);
    check_parts("child.h5", "other", 3);
    return end_ranks();
}
