#include "ranks.h"

/* Without an event set, a rank reads what another one has just written, and writes what another one has just read. */
enum { ROUNDS = 40 };

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), dataset = create_parts(file, "x", H5P_DEFAULT);
    hid_t list = transfer_list(true);
    const int other = (rank + 1) % ranks;
    int *found = allocate(EACH * sizeof *found);
    for (int i = 0; i < ROUNDS; i++) {
        int *mine = values(EACH, seed_of(rank, i)), *expected = values(EACH, seed_of(other, i));
        if (i % ranks == rank) usleep(2000);
        write_part(dataset, mine, list, H5ES_NONE);
        if ((i + 1) % ranks == rank) usleep(2000);
        read_part(dataset, other, found, list, H5ES_NONE);
        CHECK(memcmp(found, expected, EACH * sizeof *found) == 0);
        free(mine);
        free(expected);
    }
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    free(found);
    return end_ranks();
}
