#include "ranks.h"

/* HDF5 makes these collective transfers. A rank whose selections, memory or type HDF5 refuses takes part without
 * elements, and its call fails. (HDF5 alone waits for ever unless all ranks fail.) The memory of one rank may be the GPU's. */
enum { FEW = 1000, EVERY_RANK = -1 };
enum { MANY_ELEMENTS, FAR_ELEMENTS, NO_MEMORY, NO_CONVERSION, NO_FAULT };

static int *memory_with(int seed) {
    int *made = values(FEW, seed);
    if (rank != 1) return made;
    int *memory = new_memory_with(made, FEW * sizeof *made);
    free(made);
    return memory;
}

static void release(int *memory) {
    if (rank == 1)
        free_memory(memory);
    else
        free(memory);
}

static herr_t transfer(hid_t dataset, bool writes, int fault, int *memory) {
    hid_t list = transfer_list(true), at = slab((hsize_t)ranks * FEW, (hsize_t)rank * FEW, FEW);
    hid_t flat = slab(FEW + 1, 0, fault == MANY_ELEMENTS ? FEW + 1 : FEW);
    if (fault == FAR_ELEMENTS) OK(H5Soffset_simple(flat, (const hssize_t[]){2}));
    if (fault == NO_MEMORY) memory = NULL;
    const hid_t type = fault == NO_CONVERSION ? H5T_C_S1 : H5T_NATIVE_INT;
    herr_t status = writes ? H5Dwrite(dataset, type, flat, at, list, memory)
                           : H5Dread(dataset, type, flat, at, list, memory);
    OK(H5Sclose(at));
    OK(H5Sclose(flat));
    OK(H5Pclose(list));
    return status;
}

static void check_fault(hid_t dataset, int fault, int of) {
    const bool is_mine = of == EVERY_RANK || of == rank;
    int *old = memory_with(rank), *new = memory_with(rank + 100), *found = memory_with(-1);
    OK(transfer(dataset, true, NO_FAULT, old));
    CHECK((transfer(dataset, true, is_mine ? fault : NO_FAULT, new) < 0) == is_mine);
    CHECK((transfer(dataset, false, is_mine ? fault : NO_FAULT, found) < 0) == is_mine);
    CHECK(memory_has_values(found, FEW, is_mine ? -1 : rank + 100));
    OK(transfer(dataset, false, NO_FAULT, found));
    CHECK(memory_has_values(found, FEW, is_mine ? rank : rank + 100));
    release(old);
    release(new);
    release(found);
}

static void check(const char *path, bool is_metadata_collective, bool is_filtered) {
    hid_t access = shared_access_with(MPI_COMM_WORLD, "collective=hdf5"), dcpl = chunked(FEW);
    OK(H5Pset_all_coll_metadata_ops(access, is_metadata_collective));
    if (is_filtered) OK(H5Pset_fletcher32(dcpl));
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    OK(file);
    hid_t dataset = create_parts_of(file, "x", H5T_NATIVE_INT, FEW, dcpl);
    for (int fault = 0; fault < NO_FAULT; fault++)
        for (int of = EVERY_RANK; of < (is_alone() ? 0 : 2); of++) check_fault(dataset, fault, of);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(access));
    OK(H5Pclose(dcpl));
}

int main(int count, char **words) {
    begin_ranks(count, words);
    check("a.h5", false, false);
    check("b.h5", true, false);
    check("c.h5", false, true);
    return end_ranks();
}
