#include "ranks.h"

/* A process without MPI creates datasets with late allocation, and writes none. HDF5 allocates them when
 * the ranks open them. (If some chunks have been written, it does not, and loses what is written to the
 * others.) */
static void create_alone(void) {
    hid_t access = sec2(), file = H5Fcreate("x.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
    OK(file);
    hid_t late = chunked(EACH / 8), contiguous = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(late, H5D_ALLOC_TIME_INCR));
    OK(H5Pset_alloc_time(contiguous, H5D_ALLOC_TIME_LATE));
    OK(H5Dclose(create_parts(file, "contiguous", contiguous)));
    OK(H5Dclose(create_parts(file, "chunked", late)));
    OK(H5Pclose(late));
    OK(H5Pclose(contiguous));
    OK(H5Fclose(file));
    OK(H5Pclose(access));
}

int main(int count, char **words) {
    static const char *const names[] = {"contiguous", "chunked"};
    begin_ranks(count, words);
    if (rank == 0) create_alone();
    barrier();
    hid_t file = open_shared("x.h5", H5F_ACC_RDWR), list = transfer_list(true), events = new_events();
    void *memory = new_part(1), *found = new_memory(EACH * sizeof(int));
    for (int i = 0; i < 2; i++) {
        hid_t dataset = H5Dopen2(file, names[i], H5P_DEFAULT);
        OK(dataset);
        write_part(dataset, memory, list, events);
        read_part(dataset, rank, found, list, events);
        finish_all(events);
        CHECK(memory_has_values(found, EACH, seed_of(rank, 1)));
        OK(H5Dclose(dataset));
    }
    OK(H5Fclose(file));
    OK(H5ESclose(events));
    OK(H5Pclose(list));
    free_memory(memory);
    free_memory(found);
    for (int i = 0; i < 2; i++) check_parts("x.h5", names[i], 1);
    return end_ranks();
}
