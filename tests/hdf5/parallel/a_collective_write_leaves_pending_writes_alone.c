#include "ranks.h"

/* The chunks of a dataset with a filter lie before and behind another dataset. MPI-IO may write them by
 * reading and writing what lies between, too. */
enum { ROUNDS = 2, CHUNK = 4096, HALF = 12 * CHUNK };

static hid_t create_with_filter(hid_t file) {
    hid_t filter = chunked(CHUNK);
    OK(H5Pset_fletcher32(filter));
    hid_t dataset = create_parts_of(file, "checked", H5T_NATIVE_INT, 2 * HALF, filter);
    OK(H5Pclose(filter));
    return dataset;
}

/* Chunks in turn one of each rank, of one half or of both. */
static void write_chunks(hid_t dataset, hsize_t first, hsize_t halves, int seed, hid_t list) {
    const hsize_t own = HALF * halves, chunks = own / CHUNK, block = CHUNK;
    const hsize_t start = first * HALF * (hsize_t)ranks + (hsize_t)rank * CHUNK;
    const hsize_t stride = (hsize_t)ranks * CHUNK;
    int *these = values(own, seed_of(rank, seed));
    hid_t memory = H5Screate_simple(1, &own, NULL), space = H5Dget_space(dataset);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, &stride, &chunks, &block));
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, list, these));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
    free(these);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), events = new_events();
    hid_t together = transfer_list(true), alone = transfer_list(false);
    hid_t checked = create_with_filter(file);
    write_chunks(checked, 0, 1, 0, together);
    hid_t between = create_parts(file, "between", H5P_DEFAULT);
    write_chunks(checked, 1, 1, 0, together);
    const int next = (rank + 1) % ranks;
    int *found = allocate(EACH * sizeof *found);
    for (int round = 1; round <= ROUNDS; round++) {
        int *mine = values(EACH, seed_of(rank, round)), *others = values(EACH, seed_of(next, round));
        hold_bytes();
        write_part(between, mine, alone, events);
        wait_for_held_bytes();
        let_go_on_when_read();
        write_chunks(checked, 0, 2, round, together);
        has_let_go_on();
        finish_all(events);
        barrier();
        read_part(between, next, found, alone, events);
        finish_all(events);
        CHECK(memcmp(found, others, EACH * sizeof *found) == 0);
        barrier();
        free(mine);
        free(others);
    }
    OK(H5Dclose(between));
    OK(H5Dclose(checked));
    OK(H5Fclose(file));
    OK(H5ESclose(events));
    OK(H5Pclose(together));
    OK(H5Pclose(alone));
    free(found);
    check_parts("x.h5", "between", ROUNDS);
    return end_ranks();
}
