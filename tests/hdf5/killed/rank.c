#include "../parallel/ranks.h"

/* Ranks write "finished", flush it, and go on with another dataset, until the last one is killed at the step that the
 * first word names. Before that, the file "offset" gets the place of "finished" in x.h5. */
static int steps_left;

static void step(void) {
    if (rank == ranks - 1 && steps_left-- == 0) CHECK(raise(SIGKILL) == 0);
}

static void note_offset(hid_t dataset) {
    haddr_t offset = H5Dget_offset(dataset);
    CHECK(offset != HADDR_UNDEF);
    if (rank == 0) {
        FILE *note = fopen("offset", "w");
        CHECK(note != NULL && fprintf(note, "%llu", (unsigned long long)offset) > 0);
        CHECK(fclose(note) == 0);
    }
    barrier();
}

int main(int count, char **words) {
    CHECK(count == 2);
    steps_left = atoi(words[1]);
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), finished = create_parts(file, "finished", H5P_DEFAULT);
    hid_t together = transfer_list(true), alone = transfer_list(false), events = new_events();
    int *mine = values(EACH, seed_of(rank, 1));
    write_part(finished, mine, together, events);
    finish_all(events);
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    note_offset(finished);
    step();
    hid_t next = create_parts(file, "next", H5P_DEFAULT);
    step();
    write_part(next, mine, alone, events);
    step();
    write_part(next, mine, together, events);
    step();
    finish_all(events);
    step();
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    step();
    OK(H5Dclose(next));
    OK(H5Dclose(finished));
    step();
    OK(H5Fclose(file));
    step();
    H5close();
    step();
    return 0;
}
