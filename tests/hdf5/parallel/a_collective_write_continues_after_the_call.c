#include "ranks.h"

/* Independent ones, too. Another rank reads the values after the wait and a barrier. */
static void check(hid_t file, const char *name, hid_t dcpl, bool is_collective, int seed) {
    hid_t list = transfer_list(is_collective), alone = transfer_list(false), events = new_events();
    hid_t dataset = create_parts(file, name, dcpl);
    void *memory = new_part(seed), *found = new_memory(EACH * sizeof(int));
    hold_bytes();
    write_part(dataset, memory, list, events);
    CHECK_UNDER_WAY(events, 1);
    wait_for_held_bytes();
    release_held();
    finish_all(events);
    barrier();
    const int other = (rank + 1) % ranks;
    read_part(dataset, other, found, list, events);
    CHECK_UNDER_WAY(events, 1);
    finish_all(events);
    CHECK(memory_has_values(found, EACH, seed_of(other, seed)));
    read_part(dataset, other, found, alone, H5ES_NONE);
    CHECK(memory_has_values(found, EACH, seed_of(other, seed)));
    OK(H5Dclose(dataset));
    OK(H5ESclose(events));
    OK(H5Pclose(list));
    OK(H5Pclose(alone));
    free_memory(found);
    free_memory(memory);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), chunks = chunked(EACH / 7);
    check(file, "contiguous", H5P_DEFAULT, true, 1);
    check(file, "contiguous, independently", H5P_DEFAULT, false, 2);
    check(file, "chunked", chunks, true, 3);
    check(file, "chunked, independently", chunks, false, 4);
    OK(H5Pclose(chunks));
    OK(H5Fclose(file));
    check_parts("x.h5", "contiguous", 1);
    check_parts("x.h5", "contiguous, independently", 2);
    check_parts("x.h5", "chunked", 3);
    check_parts("x.h5", "chunked, independently", 4);
    return end_ranks();
}
