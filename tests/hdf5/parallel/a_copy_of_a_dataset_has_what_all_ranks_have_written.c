#include "ranks.h"

/* Each rank copies what the other ranks have written, too: also if their collective writes have continued after
 * the call. No rank still copies when another one writes to the copy. */
enum { ROUNDS = 6 };

static void copy(hid_t file, hid_t list, int round) {
    char from[16], to[16];
    snprintf(from, sizeof from, "from %d", round);
    snprintf(to, sizeof to, "to %d", round);
    const int late = round % ranks, other = (rank + 1) % ranks;
    int *mine = values(EACH, seed_of(rank, round)), *found = allocate(EACH * sizeof *found);
    hid_t written = create_parts(file, from, H5P_DEFAULT);
    if (rank == late) hold_bytes();
    write_part(written, mine, list, H5ES_NONE);
    if (rank == late && !is_alone()) {
        wait_for_held_bytes();
        let_go_on_soon();
    }
    OK(H5Ocopy(file, from, file, to, H5P_DEFAULT, H5P_DEFAULT));
    hid_t copied = H5Dopen2(file, to, H5P_DEFAULT);
    OK(copied);
    read_part(copied, other, found, H5P_DEFAULT, H5ES_NONE);
    int *expected = values(EACH, seed_of(other, round));
    CHECK(memcmp(found, expected, EACH * sizeof *found) == 0);
    barrier();
    OK(H5Dclose(written));
    OK(H5Dclose(copied));
    free(mine);
    free(found);
    free(expected);
}

int main(int count, char **words) {
    begin_ranks_with("implicit=1", count, words);
    hid_t file = create_shared("x.h5"), list = transfer_list(true);
    for (int round = 0; round < ROUNDS; round++) copy(file, list, round);
    OK(H5Pclose(list));
    OK(H5Fclose(file));
    return end_ranks();
}
