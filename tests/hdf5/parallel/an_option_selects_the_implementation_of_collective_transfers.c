#include "ranks.h"

/* With collective=hdf5 these are HDF5's, and synchronous. Independent ones go on after their call. */
int main(int count, char **words) {
    begin_ranks_with("collective=hdf5", count, words);
    hid_t file = create_shared("x.h5"), events = new_events();
    hid_t together = transfer_list(true), alone = transfer_list(false);
    hid_t dataset = create_parts(file, "x", H5P_DEFAULT);
    void *memory = new_part(1), *found = new_memory(EACH * sizeof(int));
    H5D_mpio_actual_io_mode_t mode;
    write_part(dataset, memory, together, events);
    CHECK(count_of(events) == 0);
    OK(H5Pget_mpio_actual_io_mode(together, &mode));
    CHECK(mode != H5D_MPIO_NO_COLLECTIVE);
    hold_bytes();
    write_part(dataset, memory, alone, events);
    CHECK_UNDER_WAY(events, 1);
    let_go_on_soon();
    /* A collective read of HDF5 comes after the rank's own writes. */
    read_part(dataset, rank, found, together, events);
    CHECK(memory_has_values(found, EACH, seed_of(rank, 1)));
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(together));
    OK(H5Pclose(alone));
    free_memory(memory);
    free_memory(found);
    check_parts("x.h5", "x", 1);
    return end_ranks();
}
