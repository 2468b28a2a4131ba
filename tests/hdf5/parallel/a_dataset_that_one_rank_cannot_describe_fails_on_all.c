#include "ranks.h"

/* One rank cannot read the index of the chunks when all transfer collectively. The call fails on all ranks, and succeeds
 * afterwards. (HDF5 itself writes chunks with filters, and hangs.) */
static void check(const char *name, bool writes, bool has_events) {
    hid_t file = open_shared("x.h5", writes ? H5F_ACC_RDWR : H5F_ACC_RDONLY);
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), list = transfer_list(true);
    OK(dataset);
    hid_t events = has_events ? new_events() : H5ES_NONE;
    selection at = select_from(dataset, (hsize_t)rank * EACH, EACH);
    int *mine = values(EACH, seed_of(rank, 1));
    for (int trial = 0; trial < 2; trial++) {
        const bool fails = trial == 0;
        if (fails && rank == 1) fail_everywhere(EIO);
        herr_t status =
            writes ? H5Dwrite_async(dataset, H5T_NATIVE_INT, at.memory, at.file, list, mine, events)
                   : H5Dread_async(dataset, H5T_NATIVE_INT, at.memory, at.file, list, mine, events);
        if (rank == 1) fail_no_more();
        CHECK((status < 0) == fails);
        if (fails && rank != 1) CHECK_ERROR_SAYS("another process of the MPI program has failed");
        if (has_events) finish_all(events);
    }
    int *expected = values(EACH, seed_of(rank, 1));
    CHECK(memcmp(mine, expected, EACH * sizeof *mine) == 0);
    if (has_events) close_events(events);
    close_selection(at);
    OK(H5Pclose(list));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(expected);
    free(mine);
}

static void create(const char *name, hid_t file, hid_t dcpl) {
    hid_t dataset = create_parts(file, name, dcpl), list = transfer_list(true);
    int *mine = values(EACH, seed_of(rank, 1));
    write_part(dataset, mine, list, H5ES_NONE);
    OK(H5Dclose(dataset));
    OK(H5Pclose(list));
    free(mine);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    if (!is_alone()) { /* HDF5 alone hangs */
        const hsize_t chunk = EACH / 64;
        hid_t file = create_shared("x.h5"), dcpl = H5Pcreate(H5P_DATASET_CREATE);
        OK(H5Pset_chunk(dcpl, 1, &chunk));
        create("chunked", file, dcpl);
        OK(H5Pset_fletcher32(dcpl));
        create("filtered", file, dcpl);
        OK(H5Pclose(dcpl));
        OK(H5Fclose(file));
        for (int writes = 0; writes < 2; writes++)
            for (int has_events = 0; has_events < 2; has_events++) {
                check("chunked", writes, has_events);
                if (!writes) check("filtered", writes, has_events);
            }
    }
    return end_ranks();
}
