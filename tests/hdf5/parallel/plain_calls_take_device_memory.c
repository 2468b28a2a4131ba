#include "ranks.h"

/* They are complete when they return, independent and collective ones. */
static void check(hid_t file, const char *name, hid_t dcpl, bool is_collective) {
    hid_t list = transfer_list(is_collective), dataset = create_parts(file, name, dcpl);
    void *memory = new_part(1), *found = new_memory(EACH * sizeof(int));
    write_part(dataset, memory, list, H5ES_NONE);
    barrier();
    read_part(dataset, (rank + 1) % ranks, found, list, H5ES_NONE);
    CHECK(memory_has_values(found, EACH, seed_of((rank + 1) % ranks, 1)));
    OK(H5Dclose(dataset));
    OK(H5Pclose(list));
    free_memory(memory);
    free_memory(found);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), chunks = chunked(EACH / 3), filters = chunked(EACH / 3);
    OK(H5Pset_deflate(filters, 1));
    check(file, "a", H5P_DEFAULT, true);
    check(file, "b", H5P_DEFAULT, false);
    check(file, "c", chunks, true);
    check(file, "d", chunks, false);
    check(file, "e", filters, true);
    OK(H5Pclose(chunks));
    OK(H5Pclose(filters));
    OK(H5Fclose(file));
    for (int i = 0; i < 5; i++) check_parts("x.h5", (const char *[]){"a", "b", "c", "d", "e"}[i], 1);
    return end_ranks();
}
