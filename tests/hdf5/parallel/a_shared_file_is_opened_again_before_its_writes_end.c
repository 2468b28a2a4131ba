#include "ranks.h"

/* Later calls come after the writes that the first handle has left pending. */
static void check(const char *path, bool is_collective, bool is_replaced) {
    hid_t file = create_shared(path), events = new_events(), list = transfer_list(is_collective);
    hid_t dataset = create_parts(file, "x", H5P_DEFAULT);
    void *memory = new_part(1), *other = new_part(2), *found = new_memory(EACH * sizeof(int));
    hold_bytes();
    write_part(dataset, memory, list, events);
    CHECK_UNDER_WAY(events, 1);
    OK(H5Dclose_async(dataset, events));
    OK(H5Fclose_async(file, events));
    wait_for_held_bytes();
    let_go_on_soon();
    file = is_replaced ? create_shared(path) : open_shared(path, H5F_ACC_RDWR);
    dataset = is_replaced ? create_parts(file, "x", H5P_DEFAULT) : H5Dopen2(file, "x", H5P_DEFAULT);
    OK(dataset);
    hid_t later = new_events();
    if (!is_replaced) read_part(dataset, rank, found, list, later);
    write_part(dataset, other, list, later);
    close_events(later);
    if (!is_replaced) CHECK(memory_has_values(found, EACH, seed_of(rank, 1)));
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    free_memory(memory);
    free_memory(other);
    free_memory(found);
    check_parts(path, "x", 2);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    check("a.h5", true, false);
    check("b.h5", false, false);
    check("c.h5", true, true);
    return end_ranks();
}
