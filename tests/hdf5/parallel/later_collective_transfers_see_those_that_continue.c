#include "ranks.h"

/* With event sets and no barrier of the program's, a collective read gives what all ranks have written collectively, in
 * two datasets by turns, and a collective write changes nothing that a collective read before it gives. */
enum { ROUNDS = 40 };

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5");
    hid_t datasets[2] = {create_parts(file, "x", H5P_DEFAULT), create_parts(file, "y", H5P_DEFAULT)};
    hid_t list = transfer_list(true), events = new_events();
    const int other = (rank + 1) % ranks;
    int *found[2], *mine[2];
    for (int k = 0; k < 2; k++) found[k] = allocate(EACH * sizeof *found[k]);
    for (int i = 0; i < ROUNDS; i++) {
        if (i % ranks == rank) usleep(2000);
        for (int k = 0; k < 2; k++) {
            mine[k] = values(EACH, seed_of(rank, 2 * i + k));
            write_part(datasets[k], mine[k], list, events);
        }
        if ((i + 1) % ranks == rank) usleep(2000);
        for (int k = 0; k < 2; k++) read_part(datasets[k], other, found[k], list, events);
        if (i % 2 == 0) finish_all(events);
        int *next = values(EACH, 7);
        write_part(datasets[0], next, list, events);
        finish_all(events);
        for (int k = 0; k < 2; k++) {
            int *expected = values(EACH, seed_of(other, 2 * i + k));
            CHECK(memcmp(found[k], expected, EACH * sizeof *expected) == 0);
            free(expected);
            free(mine[k]);
        }
        free(next);
    }
    for (int k = 0; k < 2; k++) {
        OK(H5Dclose(datasets[k]));
        free(found[k]);
    }
    OK(H5ESclose(events));
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    return end_ranks();
}
