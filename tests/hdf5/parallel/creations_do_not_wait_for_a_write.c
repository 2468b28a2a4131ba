#include "ranks.h"

/* Metadata is created by HDF5 at once, while writes of each rank are pending. No chunks get fill values. */
int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), events = new_events(), list = transfer_list(true);
    hid_t chunks = chunked(EACH / 3), scalar = H5Screate(H5S_SCALAR);
    OK(H5Pset_fill_time(chunks, H5D_FILL_TIME_NEVER));
    hid_t dataset = create_parts(file, "first", chunks);
    hsize_t all = (hsize_t)ranks * EACH;
    hid_t space = H5Screate_simple(1, &all, NULL);
    void *memory = new_part(1);
    hold_bytes();
    write_part(dataset, memory, list, events);
    CHECK_UNDER_WAY(events, 1);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "more%d", i);
        hid_t group = H5Gcreate_async(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT, events);
        OK(group);
        hid_t another = H5Dcreate_async(group, "x", H5T_NATIVE_INT, space, H5P_DEFAULT,
                                        i ? chunks : H5P_DEFAULT, H5P_DEFAULT, events);
        OK(another);
        hid_t note = H5Acreate_async(another, "note", H5T_NATIVE_INT, scalar, H5P_DEFAULT,
                                     H5P_DEFAULT, events);
        OK(note);
        OK(H5Awrite_async(note, H5T_NATIVE_INT, &i, events));
        OK(H5Aclose_async(note, events));
        write_part(another, memory, list, events);
        OK(H5Dclose_async(another, events));
        OK(H5Gclose_async(group, events));
    }
    wait_for_held_bytes();
    release_held();
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
    OK(H5Sclose(scalar));
    OK(H5Pclose(chunks));
    OK(H5Pclose(list));
    OK(H5Fclose(file));
    free_memory(memory);
    check_parts("x.h5", "first", 1);
    check_parts("x.h5", "more0/x", 1);
    check_parts("x.h5", "more1/x", 1);
    check_parts("x.h5", "more2/x", 1);
    return end_ranks();
}
