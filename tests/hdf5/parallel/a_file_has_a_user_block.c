#include "ranks.h"

/* HDF5 returns other lengths of a new file with a user block than without one. */
static void check(hid_t file, const char *name, hid_t dcpl, int seed) {
    hid_t dataset = create_parts(file, name, dcpl), list = transfer_list(true), events = new_events();
    void *memory = new_part(seed);
    write_part(dataset, memory, list, events);
    CHECK_UNDER_WAY(events, 1);
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Pclose(list));
    free_memory(memory);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t access = shared_access(), creation = H5Pcreate(H5P_FILE_CREATE), chunks = chunked(EACH / 3);
    OK(H5Pset_userblock(creation, 1024));
    hid_t file = H5Fcreate("x.h5", H5F_ACC_TRUNC, creation, access);
    OK(file);
    check(file, "a", H5P_DEFAULT, 1);
    check(file, "b", chunks, 2);
    OK(H5Fclose(file));
    OK(H5Pclose(access));
    OK(H5Pclose(creation));
    OK(H5Pclose(chunks));
    check_parts("x.h5", "a", 1);
    check_parts("x.h5", "b", 2);
    return end_ranks();
}
