#include "ranks.h"

/* Each rank as many of its own as it likes: none, one or two. */
int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), chunks = chunked(4099), events = new_events();
    hid_t together = transfer_list(true), alone = transfer_list(false);
    hid_t first = create_parts(file, "first", chunks), second = create_parts(file, "second", H5P_DEFAULT);
    void *memory = new_part(1), *other = new_part(2);
    void *found = new_memory(EACH * sizeof(int));
    for (int step = 0; step < 3; step++) {
        write_part(first, step == 2 ? memory : other, together, events);
        for (int i = 0; i < rank; i++) write_part(second, other, alone, events);
        if (rank == 1) read_part(second, rank, found, alone, events);
        write_part(second, step == 2 ? memory : other, together, events);
        for (int i = rank; i < ranks; i++) write_part(first, memory, alone, events);
    }
    close_events(events);
    if (rank == 1) CHECK(memory_has_values(found, EACH, seed_of(rank, 2)));
    OK(H5Dclose(first));
    OK(H5Dclose(second));
    OK(H5Fclose(file));
    OK(H5Pclose(together));
    OK(H5Pclose(alone));
    OK(H5Pclose(chunks));
    free_memory(found);
    free_memory(other);
    free_memory(memory);
    check_parts("x.h5", "first", 1);
    check_parts("x.h5", "second", 1);
    return end_ranks();
}
