#include "ranks.h"

/* HDF5 gives the storage of a deleted dataset to the next one, and one rank fills it. The writes of other ranks to the
 * deleted one have ended before: also those of a rank that is late, and those for which no rank has waited. */
enum { ROUNDS = 20 };

static void replace(hid_t file, hid_t fill, hid_t list, hid_t events) {
    hid_t old = create_parts(file, "old", H5P_DEFAULT);
    int *mine = values(EACH, seed_of(rank, 1));
    barrier();
    if (rank == 1) usleep(5000);
    write_part(old, mine, list, events);
    OK(H5Dclose(old));
    OK(H5Ldelete(file, "old", H5P_DEFAULT));
    hid_t new = create_parts(file, "new", fill);
    if (events != H5ES_NONE) finish_all(events);
    barrier();
    int *found = allocate((size_t)ranks * EACH * sizeof *found);
    OK(read_whole(new, found));
    for (size_t i = 0; i < (size_t)ranks * EACH; i++) CHECK(found[i] == 7);
    barrier();
    OK(H5Dclose(new));
    OK(H5Ldelete(file, "new", H5P_DEFAULT));
    free(mine);
    free(found);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), fill = H5Pcreate(H5P_DATASET_CREATE);
    hid_t list = transfer_list(true), events = new_events();
    const int seven = 7;
    OK(H5Pset_fill_value(fill, H5T_NATIVE_INT, &seven));
    for (int i = 0; i < ROUNDS; i++) replace(file, fill, list, i % 2 ? events : H5ES_NONE);
    close_events(events);
    OK(H5Pclose(list));
    OK(H5Pclose(fill));
    OK(H5Fclose(file));
    return end_ranks();
}
