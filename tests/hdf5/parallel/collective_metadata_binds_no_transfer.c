#include "ranks.h"

/* With collective metadata, a rank that never transfers, or selects nothing, blocks no other one: for
 * each index of chunks. */
enum { INDEXES = 5 };
static const char *const names[INDEXES] = {"contiguous", "fixed", "one unlimited", "two unlimited", "single"};

static hid_t create_indexed(hid_t file, int index) {
    const hsize_t extent[] = {(hsize_t)ranks * 64, EACH / 64};
    const hsize_t most[] = {index >= 2 && index <= 3 ? H5S_UNLIMITED : extent[0],
                            index == 3 ? H5S_UNLIMITED : extent[1]};
    const hsize_t chunk[] = {17, 4001}, whole[] = {extent[0], extent[1]};
    hid_t space = H5Screate_simple(2, extent, most), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    if (index > 0) OK(H5Pset_chunk(dcpl, 2, index == 4 ? whole : chunk));
    hid_t dataset =
        H5Dcreate2(file, names[index], H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    OK(H5Sclose(space));
    OK(H5Pclose(dcpl));
    return dataset;
}

static void transfer(hid_t dataset, void *memory, bool is_empty, bool is_read, hid_t list, hid_t events) {
    const hsize_t start[] = {(hsize_t)rank * 64, 0}, size[] = {64, EACH / 64};
    hid_t space = H5Dget_space(dataset), flat = H5Screate_simple(2, size, NULL);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL));
    if (is_empty) {
        OK(H5Sselect_none(space));
        OK(H5Sselect_none(flat));
    }
    if (is_read)
        OK(H5Dread_async(dataset, H5T_NATIVE_INT, flat, space, list, memory, events));
    else
        OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, flat, space, list, memory, events));
    OK(H5Sclose(space));
    OK(H5Sclose(flat));
}

static void check(const char *path, H5F_libver_t oldest, bool writes_together) {
    hid_t access = shared_access(), events = new_events();
    hid_t together = transfer_list(true), alone = transfer_list(false);
    OK(H5Pset_all_coll_metadata_ops(access, true));
    OK(H5Pset_coll_metadata_write(access, writes_together));
    OK(H5Pset_libver_bounds(access, oldest, H5F_LIBVER_LATEST));
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    OK(file);
    int *old = values(EACH, 100 + rank), *new = values(EACH, rank);
    void *first = new_memory_with(old, EACH * sizeof *old), *memory = new_memory_with(new, EACH * sizeof *new);
    void *found = new_memory(EACH * sizeof *new);
    for (int index = 0; index < INDEXES; index++) OK(H5Dclose(create_indexed(file, index)));
    OK(H5Fclose(file));
    file = H5Fopen(path, H5F_ACC_RDWR, access);
    OK(file);
    for (int index = 0; index < INDEXES; index++) {
        hid_t dataset = H5Dopen2(file, names[index], H5P_DEFAULT);
        OK(dataset);
        if (rank != 0) transfer(dataset, first, false, false, alone, events);
        transfer(dataset, memory, rank == 1, false, together, events);
        if (rank == 2) transfer(dataset, found, false, true, alone, events);
        finish_all(events);
        if (rank == 2) CHECK(memory_holds(found, new, EACH * sizeof *new));
        OK(H5Dclose(dataset));
    }
    OK(H5Fclose(file));
    barrier();
    file = H5Fopen(path, H5F_ACC_RDONLY, access);
    OK(file);
    for (int index = 0; index < INDEXES; index++) {
        hid_t dataset = H5Dopen2(file, names[index], H5P_DEFAULT);
        OK(dataset);
        /* HDF5 opens an index in the first transfer, by all ranks. */
        transfer(dataset, found, false, true, together, events);
        if (rank != 0) transfer(dataset, found, false, true, alone, events);
        finish_all(events);
        if (rank != 0) CHECK(memory_holds(found, rank == 1 ? old : new, EACH * sizeof *new));
        OK(H5Dclose(dataset));
    }
    OK(H5Fclose(file));
    OK(H5ESclose(events));
    OK(H5Pclose(access));
    OK(H5Pclose(together));
    OK(H5Pclose(alone));
    free_memory(first);
    free_memory(memory);
    free_memory(found);
    free(old);
    free(new);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    for (int writes_together = 0; writes_together < 2; writes_together++) {
        check("old.h5", H5F_LIBVER_EARLIEST, writes_together);
        check("new.h5", H5F_LIBVER_LATEST, writes_together);
    }
    return end_ranks();
}
