#include "ranks.h"

/* The last rank is late with the fill values that HDF5 has it write to the last chunks. The first one
 * writes its elements there. */
static void *hold_a_while(void *is_holding) {
    hold();
    *(_Atomic bool *)is_holding = true;
    usleep(300000);
    release_held();
    return NULL;
}

static void be_late(void) {
    static _Atomic bool is_holding;
    if (rank != ranks - 1) return;
    is_holding = false;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, hold_a_while, (void *)&is_holding) == 0);
    CHECK(pthread_detach(thread) == 0);
    while (!is_holding) usleep(1000);
}

static void write_other_part(hid_t dataset, hsize_t start, const void *from, hid_t list) {
    hid_t events = new_events();
    write_from(dataset, start + (hsize_t)(ranks - 1 - rank) * EACH, EACH, from, list, events);
    close_events(events);
    barrier();
}

static void check(hid_t file, const char *name, bool is_collective) {
    hsize_t extent = (hsize_t)ranks * EACH, grown = 2 * extent;
    const hsize_t most = H5S_UNLIMITED;
    hid_t space = H5Screate_simple(1, &extent, &most), dcpl = chunked(EACH / 4);
    hid_t list = transfer_list(is_collective);
    int *own = values(EACH, seed_of(ranks - 1 - rank, 1));
    void *memory = new_memory_with(own, EACH * sizeof *own);
    barrier();
    be_late();
    hid_t dataset = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    write_other_part(dataset, 0, memory, list);
    be_late();
    OK(H5Dset_extent(dataset, &grown));
    write_other_part(dataset, extent, memory, list);
    int *found = allocate(grown * sizeof *found);
    OK(read_whole(dataset, found));
    for (hsize_t i = 0; i < grown; i++)
        CHECK(found[i] == value_at(i % EACH, seed_of((int)(i / EACH % (hsize_t)ranks), 1)));
    barrier();
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
    OK(H5Pclose(dcpl));
    OK(H5Pclose(list));
    free(own);
    free(found);
    free_memory(memory);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5");
    check(file, "together", true);
    check(file, "alone", false);
    OK(H5Fclose(file));
    return end_ranks();
}
