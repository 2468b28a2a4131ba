#include "events.h"

enum { SOME = 100, FIRST = MANY / 2 };

static void transfer_some(bool reads, hid_t dataset, void *memory, hid_t events) {
    hid_t of_file = slab(MANY, FIRST, SOME), of_memory = slab(SOME, 0, SOME);
    if (reads)
        OK(H5Dread_async(dataset, H5T_NATIVE_INT, of_memory, of_file, H5P_DEFAULT, memory, events));
    else
        OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, of_memory, of_file, H5P_DEFAULT, memory,
                          events));
    OK(H5Sclose(of_file));
    OK(H5Sclose(of_memory));
}

/* Small ones before a large one, after it while it is pending, and by another handle. */
static void check(hid_t file, hid_t same, const char *name, hid_t dcpl) {
    hid_t dataset = create_dataset(file, name, MANY, dcpl), events = new_events();
    hid_t other = H5Dopen2(same, name, H5P_DEFAULT);
    OK(other);
    int *these = values(MANY, 1);
    void *memory = new_memory_with(these, MANY * sizeof(int));
    void *some[4];
    for (int i = 0; i < 4; i++) {
        int *of_seed = values(SOME, 2 + i);
        some[i] = new_memory_with(of_seed, SOME * sizeof(int));
        free(of_seed);
    }
    void *found[2] = {new_memory(SOME * sizeof(int)), new_memory(SOME * sizeof(int))};

    transfer_some(false, dataset, some[0], events);
    if (dcpl == H5P_DEFAULT) {
        /* What is held must not come after something else. */
        finish_all(events);
        write_and_hold(dataset, memory, events);
        let_go_on_soon();
    } else {
        OK(write_later(dataset, memory, events));
    }
    transfer_some(true, other, found[0], events);
    transfer_some(false, dataset, some[1], events);
    transfer_some(false, other, some[2], events);
    transfer_some(true, dataset, found[1], events);
    transfer_some(false, dataset, some[3], events);
    finish_all(events);
    CHECK(memory_holds(found[0], these + FIRST, SOME * sizeof(int)));
    CHECK(memory_has_values(found[1], SOME, 4));

    transfer_some(true, other, found[0], events);
    close_events(events);
    CHECK(memory_has_values(found[0], SOME, 5));
    OK(H5Dclose(other));
    OK(H5Dclose(dataset));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    int *expected = values(SOME, 5), *all = allocate(MANY * sizeof(int));
    memcpy(these + FIRST, expected, SOME * sizeof(int));
    dataset = H5Dopen2(file, name, H5P_DEFAULT);
    OK(read_whole(dataset, all));
    CHECK(memcmp(all, these, MANY * sizeof(int)) == 0);
    OK(H5Dclose(dataset));
    for (int i = 0; i < 4; i++) free_memory(some[i]);
    free_memory(found[0]);
    free_memory(found[1]);
    free_memory(memory);
    free(expected);
    free(these);
    free(all);
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), again = H5Freopen(file), dcpl = chunked(MANY / 16);
    OK(again);
    check(file, again, "contiguous", H5P_DEFAULT);
    check(file, again, "chunked", dcpl);
    OK(H5Pclose(dcpl));
    OK(H5Fclose(again));
    OK(H5Fclose(file));
    return 0;
}
