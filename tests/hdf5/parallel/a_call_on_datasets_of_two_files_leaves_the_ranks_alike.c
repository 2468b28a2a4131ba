#include "ranks.h"

/* HDF5 refuses one call on datasets of two files. Later collective transfers return on all ranks, although one
 * rank alone has used the second dataset before that call. */
static hid_t create_with_collective_metadata(const char *path) {
    hid_t access = shared_access();
    OK(H5Pset_coll_metadata_write(access, true));
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    OK(file);
    OK(H5Pclose(access));
    return file;
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t files[2] = {create_with_collective_metadata("a.h5"), create_with_collective_metadata("b.h5")};
    /* So that the datasets have other addresses in their files. */
    OK(H5Dclose(create_parts(files[1], "first", H5P_DEFAULT)));
    hid_t datasets[2], types[2], flats[2], spaces[2], list = transfer_list(true), events = new_events();
    int *mine = values(EACH, seed_of(rank, 1));
    const void *sources[2] = {mine, mine};
    for (int i = 0; i < 2; i++) {
        datasets[i] = create_parts(files[i], "x", H5P_DEFAULT);
        types[i] = H5T_NATIVE_INT;
        selection at = select_from(datasets[i], (hsize_t)rank * EACH, EACH);
        flats[i] = at.memory, spaces[i] = at.file;
    }
    if (rank == 0) write_part(datasets[1], mine, H5P_DEFAULT, H5ES_NONE);
    barrier();
    CHECK(H5Dwrite_multi_async(2, datasets, types, flats, spaces, list, sources, events) < 0);
    for (int pass = 1; pass <= 3; pass++) {
        int *next = values(EACH, seed_of(rank, pass)), *found = allocate(EACH * sizeof *found);
        write_part(datasets[1], next, list, H5ES_NONE);
        read_part(datasets[1], (rank + 1) % ranks, found, list, H5ES_NONE);
        int *expected = values(EACH, seed_of((rank + 1) % ranks, pass));
        CHECK(memcmp(found, expected, EACH * sizeof *found) == 0);
        free(next);
        free(found);
        free(expected);
        barrier();
    }
    close_events(events);
    for (int i = 0; i < 2; i++) {
        OK(H5Sclose(flats[i]));
        OK(H5Sclose(spaces[i]));
        OK(H5Dclose(datasets[i]));
        OK(H5Fclose(files[i]));
    }
    OK(H5Pclose(list));
    free(mine);
    check_parts("b.h5", "x", 3);
    return end_ranks();
}
