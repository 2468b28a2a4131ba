#include "ranks.h"

#include <sys/mman.h>

/* The error is that of one rank's event set. The bytes of the others are there, and all ranks close the
 * file. */
int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), chunks = chunked(EACH / 3), list = transfer_list(true);
    void *absent = mmap(NULL, EACH * sizeof(int), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(absent != MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        hid_t dataset = create_parts(file, i ? "b" : "a", i ? chunks : H5P_DEFAULT);
        void *memory = new_part(1);
        hid_t events = new_events(), at = slab((hsize_t)ranks * EACH, (hsize_t)rank * EACH, EACH);
        const hsize_t many = EACH;
        hid_t flat = H5Screate_simple(1, &many, NULL);
        write_part(dataset, memory, list, events);
        finish_all(events);
        /* HDF5 alone passes the address to MPI, which may end the process. */
        if (rank != 1 || is_alone()) {
            write_part(dataset, memory, list, events);
            close_events(events);
        } else if (H5Dwrite_async(dataset, H5T_NATIVE_INT, flat, at, list, absent, events) < 0) {
            CHECK_ERROR_SAYS("Bad address");
            close_events(events);
        } else {
            CHECK_SAYS(failure_of(events, "H5Dwrite_async"), "Bad address");
            OK(H5ESclose(events));
        }
        OK(H5Dclose(dataset));
        OK(H5Sclose(at));
        OK(H5Sclose(flat));
        free_memory(memory);
    }
    OK(H5Pclose(chunks));
    OK(H5Pclose(list));
    OK(H5Fclose(file));
    check_parts("x.h5", "a", 1);
    check_parts("x.h5", "b", 1);
    return end_ranks();
}
