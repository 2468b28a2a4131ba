#include "ranks.h"

/* HDF5 gives the storage of a dataset that has no name, or no longer one, to the next dataset when the ranks close it.
 * The writes of other ranks to the closed one have ended before: also those of a rank that is late. */
enum { ROUNDS = 6 };

static hid_t create_without_a_name(hid_t file, bool is_deleted) {
    if (is_deleted) {
        hid_t made = create_parts(file, "old", H5P_DEFAULT);
        OK(H5Ldelete(file, "old", H5P_DEFAULT));
        return made;
    }
    hsize_t all = EACH * (hsize_t)ranks;
    hid_t space = H5Screate_simple(1, &all, NULL);
    hid_t made = H5Dcreate_anon(file, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT);
    OK(made);
    OK(H5Sclose(space));
    return made;
}

static void replace(hid_t file, hid_t fill, hid_t list, int round) {
    hid_t events = new_events(), old = create_without_a_name(file, round % 2);
    const int late = round % ranks, other = (rank + 1) % ranks;
    int *mine = values(EACH, seed_of(rank, round)), *others = values(EACH, seed_of(other, round + 100));
    int *found = allocate(EACH * sizeof *found);
    if (rank == late) hold_bytes();
    write_part(old, mine, list, events);
    if (rank == late && !is_alone()) {
        wait_for_held_bytes();
        let_go_on_soon();
    }
    OK(H5Dclose(old));
    hid_t new = create_parts(file, "new", fill);
    write_from(new, (hsize_t)other * EACH, EACH, others, H5P_DEFAULT, H5ES_NONE);
    close_events(events);
    barrier();
    read_part(new, other, found, H5P_DEFAULT, H5ES_NONE);
    CHECK(memcmp(found, others, EACH * sizeof *found) == 0);
    barrier();
    OK(H5Dclose(new));
    OK(H5Ldelete(file, "new", H5P_DEFAULT));
    free(mine);
    free(others);
    free(found);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), fill = H5Pcreate(H5P_DATASET_CREATE), list = transfer_list(true);
    OK(H5Pset_fill_time(fill, H5D_FILL_TIME_NEVER));
    for (int round = 0; round < ROUNDS; round++) replace(file, fill, list, round);
    OK(H5Pclose(list));
    OK(H5Pclose(fill));
    OK(H5Fclose(file));
    return end_ranks();
}
