#include "ranks.h"

#include <sys/mman.h>

/* HDF5 makes these transfers. The rank whose memory is unmapped takes part without elements, and its call
 * fails. */
enum { FEW = 1000 };

static void check(const char *path, bool is_metadata_collective, bool is_filtered, void *absent) {
    hid_t access = shared_access(), dcpl = chunked(FEW), list = transfer_list(true);
    OK(H5Pset_coll_metadata_write(access, is_metadata_collective));
    if (is_filtered) OK(H5Pset_fletcher32(dcpl));
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access), events = new_events();
    OK(file);
    hid_t dataset = create_parts_of(file, "x", H5T_NATIVE_INT, FEW, dcpl);
    hid_t at = slab((hsize_t)ranks * FEW, (hsize_t)rank * FEW, FEW), flat = slab(FEW, 0, FEW);
    int *own = values(FEW, rank), found[FEW];
    const void *memory = rank == 1 && !is_alone() ? absent : own;
    herr_t status = H5Dwrite_async(dataset, H5T_NATIVE_INT, flat, at, list, memory, events);
    CHECK((status < 0) == (memory == absent));
    if (status < 0) CHECK_ERROR_SAYS("Bad address");
    close_events(events);
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    OK(H5Dread(dataset, H5T_NATIVE_INT, flat, at, list, found));
    if (memory != absent) CHECK(memcmp(found, own, sizeof found) == 0);
    OK(H5Sclose(at));
    OK(H5Sclose(flat));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(access));
    OK(H5Pclose(dcpl));
    OK(H5Pclose(list));
    free(own);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    void *absent = mmap(NULL, FEW * sizeof(int), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(absent != MAP_FAILED);
    check("a.h5", false, false, absent);
    check("b.h5", false, true, absent);
    check("c.h5", true, false, absent);
    return end_ranks();
}
