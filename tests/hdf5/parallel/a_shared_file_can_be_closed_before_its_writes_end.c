#include "ranks.h"

/* HDF5 closes the file, and sets its length, while writes of each rank are pending. */
static void check(const char *path, bool is_collective, bool has_event_set, int seed) {
    hid_t file = create_shared(path), chunks = chunked(EACH / 3), events = new_events();
    hid_t list = transfer_list(is_collective);
    hid_t first = create_parts(file, "first", H5P_DEFAULT), last = create_parts(file, "last", chunks);
    void *memory = new_part(seed);
    hold_bytes();
    write_part(first, memory, list, events);
    write_part(last, memory, list, events);
    CHECK_UNDER_WAY(events, 2);
    if (has_event_set) {
        OK(H5Dclose_async(first, events));
        OK(H5Dclose_async(last, events));
        OK(H5Fclose_async(file, events));
        wait_for_held_bytes();
        release_held();
    } else {
        let_go_on_soon();
        OK(H5Dclose(first));
        OK(H5Dclose(last));
        OK(H5Fclose(file));
    }
    close_events(events);
    barrier();
    file = open_shared(path, H5F_ACC_RDONLY);
    for (int i = 0; i < 2; i++) {
        hid_t dataset = H5Dopen2(file, i ? "last" : "first", H5P_DEFAULT);
        OK(dataset);
        CHECK(dataset_has_parts(dataset, seed));
        OK(H5Dclose(dataset));
    }
    OK(H5Fclose(file));
    OK(H5Pclose(chunks));
    OK(H5Pclose(list));
    free_memory(memory);
    check_parts(path, "first", seed);
    check_parts(path, "last", seed);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    check("a.h5", true, true, 1);
    check("b.h5", false, true, 2);
    check("c.h5", true, false, 3);
    /* The same file again, whose old contents must not come back. */
    check("a.h5", true, true, 4);
    return end_ranks();
}
