#include "ranks.h"

/* Of two collective writes of one dataset, in which each rank has another part, the second wins, with event sets and in
 * implicit mode, of all elements and of some, in rows of chunks and without chunks, with metadata that the ranks read
 * together, too. */
enum { ROUNDS = 3, WIDE = 1 << 16, ROWS = 64 };

static void write_rows(hid_t dataset, hsize_t first, hsize_t each, short value, hid_t list, hid_t events) {
    const hsize_t start[] = {0, first}, size[] = {ROWS, each};
    const size_t count = ROWS * each;
    hid_t memory = H5Screate_simple(2, size, NULL), space = H5Dget_space(dataset);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL));
    short *these = allocate(count * sizeof *these);
    for (size_t i = 0; i < count; i++) these[i] = value;
    void *from = new_memory_with(these, count * sizeof *these);
    OK(H5Dwrite_async(dataset, H5T_NATIVE_SHORT, memory, space, list, from, events));
    free_memory(from);
    free(these);
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
}

static void check(hid_t file, const char *name, hid_t dcpl, bool has_events) {
    const hsize_t each = WIDE / (hsize_t)ranks, extent[] = {ROWS, each * (hsize_t)ranks};
    hid_t space = H5Screate_simple(2, extent, NULL), list = transfer_list(true);
    hid_t dataset = H5Dcreate2(file, name, H5T_NATIVE_SHORT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    hid_t events = has_events ? new_events() : H5ES_NONE;
    for (int pass = 1; pass <= 3; pass++) {
        const hsize_t first = each * (hsize_t)((rank + pass) % ranks);
        if (pass < 3)
            write_rows(dataset, first, each, (short)(pass * 100), list, events);
        else
            write_rows(dataset, first + each / 4, each / 2, (short)(pass * 100), list, events);
    }
    if (has_events) close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    barrier();
    dataset = H5Dopen2(file, name, H5P_DEFAULT);
    const size_t count = ROWS * extent[1];
    short *found = allocate(count * sizeof *found);
    OK(H5Dread(dataset, H5T_NATIVE_SHORT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
    for (size_t i = 0; i < count; i++) {
        const size_t at = i % extent[1] % each;
        CHECK(found[i] == (at >= each / 4 && at < each / 4 + each / 2 ? 300 : 200));
    }
    barrier();
    free(found);
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
    OK(H5Pclose(list));
}

int main(int count, char **words) {
    begin_ranks_with("implicit=1", count, words);
    const hsize_t chunk[] = {ROWS / 2, WIDE / 8};
    hid_t chunked = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(chunked, 2, chunk));
    OK(H5Pset_fill_time(chunked, H5D_FILL_TIME_NEVER));
    for (int round = 0; round <= ROUNDS; round++) {
        hid_t access = shared_access();
        OK(H5Pset_all_coll_metadata_ops(access, round == ROUNDS));
        hid_t file = H5Fcreate("x.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
        OK(file);
        OK(H5Pclose(access));
        check(file, "contiguous, events", H5P_DEFAULT, true);
        check(file, "contiguous, implicit", H5P_DEFAULT, false);
        check(file, "chunked, events", chunked, true);
        check(file, "chunked, implicit", chunked, false);
        OK(H5Fclose(file));
    }
    OK(H5Pclose(chunked));
    return end_ranks();
}
