#include "ranks.h"

/* In each collective call other ranks give an event set: all ranks return, and later collective transfers of
 * contiguous and chunked datasets, with and without a filter, see what was written. */
enum { ROUNDS = 16 };

static void check(hid_t file, const char *name, hid_t dcpl) {
    hid_t dataset = create_parts(file, name, dcpl), list = transfer_list(true), events = new_events();
    const int other = (rank + 1) % ranks;
    void *found = new_memory(EACH * sizeof(int));
    for (int i = 0; i < ROUNDS; i++) {
        const bool writes_later = (i >> (rank % 3)) & 1, reads_later = (i >> ((rank + 1) % 3)) & 1;
        void *mine = new_part(i);
        write_part(dataset, mine, list, writes_later ? events : H5ES_NONE);
        read_part(dataset, other, found, list, reads_later ? events : H5ES_NONE);
        if (i % 4 == 3) {
            int *next = values(EACH, seed_of(rank, 99));
            write_part(dataset, next, list, reads_later ? H5ES_NONE : events);
            finish_all(events);
            free(next);
        }
        finish_all(events);
        CHECK(memory_has_values(found, EACH, seed_of(other, i)));
        free_memory(mine);
    }
    OK(H5ESclose(events));
    OK(H5Dclose(dataset));
    OK(H5Pclose(list));
    free_memory(found);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    const hsize_t chunk = EACH / 2;
    hid_t file = create_shared("x.h5"), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    check(file, "contiguous", H5P_DEFAULT);
    OK(H5Pset_chunk(dcpl, 1, &chunk));
    check(file, "chunked", dcpl);
    OK(H5Pset_fletcher32(dcpl));
    check(file, "filtered", dcpl);
    OK(H5Fclose(file));
    OK(H5Pclose(dcpl));
    return end_ranks();
}
