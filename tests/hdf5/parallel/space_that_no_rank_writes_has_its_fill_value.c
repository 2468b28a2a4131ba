#include "ranks.h"

/* Each rank writes the first half of its part. The fill value is in the other one, if HDF5 writes it. */
enum { FILL = 1234567 };

static void check(hid_t file, const char *name, bool is_chunked, H5D_fill_time_t time, bool is_collective) {
    const int fill = FILL;
    const hsize_t half = EACH / 2;
    hid_t dcpl = is_chunked ? chunked(EACH / 3) : H5Pcreate(H5P_DATASET_CREATE);
    hid_t list = transfer_list(is_collective), events = new_events();
    OK(H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill));
    OK(H5Pset_fill_time(dcpl, time));
    hid_t dataset = create_parts(file, name, dcpl);
    void *memory = new_part(1);
    write_from(dataset, (hsize_t)rank * EACH, half, memory, list, events);
    CHECK_UNDER_WAY(events, 1);
    close_events(events);
    barrier();
    int *found = allocate((size_t)ranks * EACH * sizeof *found);
    OK(read_whole(dataset, found));
    for (size_t i = 0; i < (size_t)ranks * EACH; i++) {
        if (i % EACH < half)
            CHECK(found[i] == value_at(i % EACH, seed_of((int)(i / EACH), 1)));
        else if (time != H5D_FILL_TIME_NEVER)
            CHECK(found[i] == FILL);
    }
    barrier();
    OK(H5Dclose(dataset));
    OK(H5Pclose(dcpl));
    OK(H5Pclose(list));
    free(found);
    free_memory(memory);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5");
    check(file, "a", false, H5D_FILL_TIME_IFSET, true);
    check(file, "b", false, H5D_FILL_TIME_NEVER, false);
    check(file, "c", true, H5D_FILL_TIME_IFSET, false);
    check(file, "d", true, H5D_FILL_TIME_ALLOC, true);
    check(file, "e", true, H5D_FILL_TIME_NEVER, true);
    OK(H5Fclose(file));
    return end_ranks();
}
