#include "ranks.h"

/* A dataset grows while its writes are pending, and loses what is beyond its end. */
enum { FILL = -5 };

static void check(hid_t file, const char *name, bool is_latest, bool is_collective) {
    hsize_t extent = (hsize_t)ranks * EACH, grown = 2 * extent, chunk = 100003;
    const hsize_t most = is_latest ? H5S_UNLIMITED : 4 * extent;
    const int fill = FILL;
    hid_t space = H5Screate_simple(1, &extent, &most), dcpl = chunked(chunk);
    hid_t list = transfer_list(is_collective), events = new_events();
    OK(H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill));
    hid_t dataset = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    void *memory = new_part(1), *other = new_part(2);
    hold_bytes();
    write_part(dataset, memory, list, events);
    CHECK_UNDER_WAY(events, 1);
    let_go_on_soon();
    OK(H5Dset_extent_async(dataset, &grown, events));
    write_from(dataset, extent + (hsize_t)rank * EACH, EACH, other, list, events);
    const hsize_t shrunk = extent + EACH / 2;
    close_events(events);
    barrier();
    OK(H5Dset_extent(dataset, &shrunk));
    OK(H5Dset_extent(dataset, &grown));
    barrier();
    int *found = allocate(grown * sizeof *found);
    OK(read_whole(dataset, found));
    for (hsize_t i = 0; i < grown; i++) {
        const size_t of = i / EACH % (hsize_t)ranks;
        int expected = value_at(i % EACH, seed_of((int)of, i < extent ? 1 : 2));
        if (i >= shrunk) expected = FILL;
        /* HDF5 keeps the fill values of a chunk that it has cut in its cache. */
        const bool is_edge = i >= shrunk && i / chunk == shrunk / chunk;
        if (!is_edge) CHECK(found[i] == expected);
    }
    barrier();
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
    OK(H5Pclose(dcpl));
    OK(H5Pclose(list));
    free(found);
    free_memory(memory);
    free_memory(other);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    for (int is_latest = 0; is_latest < 2; is_latest++) {
        hid_t access = shared_access();
        if (is_latest) OK(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
        hid_t file = H5Fcreate(is_latest ? "new.h5" : "old.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
        OK(file);
        check(file, "together", is_latest, true);
        check(file, "alone", is_latest, false);
        OK(H5Fclose(file));
        OK(H5Pclose(access));
    }
    return end_ranks();
}
