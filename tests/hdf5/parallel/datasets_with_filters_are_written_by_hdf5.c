#include "ranks.h"

/* Collectively, as HDF5 requires, after the writes of other datasets. Reads of a file that is open for reading
 * go on after the call. */
int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), filters = chunked(100003), events = new_events();
    hid_t together = transfer_list(true), alone = transfer_list(false);
    OK(H5Pset_shuffle(filters));
    OK(H5Pset_deflate(filters, 1));
    hid_t plain = create_parts(file, "plain", H5P_DEFAULT), packed = create_parts(file, "packed", filters);
    void *memory = new_part(1), *other = new_part(2);
    hold_bytes();
    write_part(plain, memory, together, events);
    CHECK_UNDER_WAY(events, 1);
    wait_for_held_bytes();
    let_go_on_soon();
    write_part(packed, other, together, events);
    CHECK_UNDER_WAY(events, 1);
    finish_all(events);
    /* The parts of two ranks share chunks, and a rank writes nothing. */
    hid_t none = H5Dget_space(packed);
    OK(H5Sselect_none(none));
    if (rank == 0)
        OK(H5Dwrite_async(packed, H5T_NATIVE_INT, none, none, together, NULL, events));
    else
        write_part(packed, memory, together, events);
    CHECK(count_of(events) == 0);
    OK(H5Sclose(none));
    OK(H5Dclose(plain));
    OK(H5Dclose(packed));
    OK(H5Fclose(file));
    barrier();

    file = open_shared("x.h5", H5F_ACC_RDONLY);
    packed = H5Dopen2(file, "packed", H5P_DEFAULT);
    OK(packed);
    for (int i = 0; i < 2; i++) {
        const int of = (rank + 1) % ranks;
        void *found = new_memory(EACH * sizeof(int));
        hold_bytes();
        read_part(packed, of, found, i ? together : alone, events);
        CHECK_UNDER_WAY(events, 1);
        release_held();
        finish_all(events);
        CHECK(memory_has_values(found, EACH, seed_of(of, of == 0 ? 2 : 1)));
        free_memory(found);
    }
    OK(H5Dclose(packed));
    OK(H5Fclose(file));
    OK(H5ESclose(events));
    OK(H5Pclose(filters));
    OK(H5Pclose(together));
    OK(H5Pclose(alone));
    free_memory(memory);
    free_memory(other);
    check_parts("x.h5", "plain", 1);
    return end_ranks();
}
