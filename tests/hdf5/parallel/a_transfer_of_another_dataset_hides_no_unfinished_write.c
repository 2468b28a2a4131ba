#include "ranks.h"

/* A collective write of one dataset that continues, a short collective write of another dataset, and a second
 * collective write of the first one, in which the ranks have each other's parts: the second wins. */
enum { ROUNDS = 6, FEW = 16 };

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), list = transfer_list(true), events = new_events();
    hid_t large = create_parts(file, "large", H5P_DEFAULT);
    hid_t small = create_parts(file, "small", H5P_DEFAULT);
    const int other = (rank + 1) % ranks;
    int *found = allocate(EACH * sizeof *found);
    for (int round = 0; round < ROUNDS; round++) {
        int *first = values(EACH, seed_of(rank, round)), *second = values(EACH, seed_of(other, round + 50));
        const bool is_late = rank == round % ranks;
        if (is_late) hold_bytes();
        write_part(large, first, list, events);
        if (is_late) wait_for_held_bytes();
        write_from(small, (hsize_t)rank * FEW, FEW, second, list, H5ES_NONE);
        if (is_late && !is_alone()) let_go_on_soon();
        write_from(large, (hsize_t)other * EACH, EACH, second, list, H5ES_NONE);
        finish_all(events);
        barrier();
        read_part(large, other, found, H5P_DEFAULT, H5ES_NONE);
        CHECK(memcmp(found, second, EACH * sizeof *found) == 0);
        barrier();
        free(first);
        free(second);
    }
    OK(H5Dclose(large));
    OK(H5Dclose(small));
    OK(H5Fclose(file));
    OK(H5ESclose(events));
    OK(H5Pclose(list));
    free(found);
    return end_ranks();
}
