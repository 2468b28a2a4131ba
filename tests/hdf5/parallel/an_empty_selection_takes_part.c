#include "ranks.h"

/* A rank that selects nothing calls what the others call, without memory, and waits for nothing. */
static void check(hid_t dataset, int empty_rank, hid_t list, int seed) {
    hid_t events = new_events(), none = H5Dget_space(dataset);
    OK(H5Sselect_none(none));
    void *memory = new_part(seed), *found = new_memory(EACH * sizeof(int));
    const bool is_empty = empty_rank == rank || empty_rank == ranks;
    if (is_empty) {
        OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, none, none, list, NULL, events));
        CHECK(count_of(events) == 0);
    } else {
        write_part(dataset, memory, list, events);
        CHECK_UNDER_WAY(events, 1);
    }
    finish_all(events);
    barrier();
    if (is_empty) {
        OK(H5Dread_async(dataset, H5T_NATIVE_INT, none, none, list, NULL, events));
        CHECK(count_of(events) == 0);
    } else {
        read_part(dataset, rank, found, list, events);
    }
    close_events(events);
    if (!is_empty) CHECK(memory_has_values(found, EACH, seed_of(rank, seed)));
    barrier();
    OK(H5Sclose(none));
    free_memory(found);
    free_memory(memory);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), chunks = chunked(EACH / 7);
    for (int way = 0; way < 4; way++) {
        hid_t list = transfer_list(way % 2 == 0);
        hid_t dataset = create_parts(file, way < 2 ? (way ? "b" : "a") : (way == 2 ? "c" : "d"),
                                     way < 2 ? H5P_DEFAULT : chunks);
        check(dataset, 0, list, 1);
        check(dataset, ranks - 1, list, 1);
        check(dataset, ranks, list, 2); /* all ranks: nothing changes */
        OK(H5Dclose(dataset));
        OK(H5Pclose(list));
    }
    OK(H5Pclose(chunks));
    OK(H5Fclose(file));
    for (int way = 0; way < 4; way++) check_parts("x.h5", (const char *[]){"a", "b", "c", "d"}[way], 1);
    return end_ranks();
}
