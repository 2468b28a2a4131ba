#include "ranks.h"

/* What H5Fflush has flushed, and a wait after H5Fflush_async, other programs find in the file. */
static void check(hid_t file, hid_t dataset, bool has_event_set, int seed) {
    hid_t events = new_events(), list = transfer_list(true);
    void *memory = new_part(seed);
    const haddr_t start = H5Dget_offset(dataset);
    CHECK(start != HADDR_UNDEF);
    hold_bytes();
    write_part(dataset, memory, list, events);
    CHECK_UNDER_WAY(events, 1);
    let_go_on_soon();
    if (has_event_set) {
        OK(H5Fflush_async(file, H5F_SCOPE_GLOBAL, events));
        finish_all(events);
    } else {
        OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    }
    int descriptor = open("x.h5", O_RDONLY), *found = allocate(EACH * sizeof *found);
    const size_t bytes = EACH * sizeof *found, at = start + (size_t)rank * bytes;
    CHECK(descriptor >= 0);
    CHECK(pread(descriptor, found, bytes, (off_t)at) == (ssize_t)bytes);
    for (size_t i = 0; i < EACH; i++) CHECK(found[i] == value_at(i, seed_of(rank, seed)));
    CHECK(close(descriptor) == 0);
    close_events(events);
    OK(H5Pclose(list));
    free(found);
    free_memory(memory);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), dataset = create_parts(file, "x", H5P_DEFAULT);
    check(file, dataset, false, 1);
    check(file, dataset, true, 2);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    check_parts("x.h5", "x", 2);
    return end_ranks();
}
