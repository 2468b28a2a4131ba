#include "ranks.h"

/* HDF5 writes the fill values of new chunks collectively, and some of the chunks lie in the gap that an alignment
 * has left before another dataset. MPI-IO may write them by reading and writing what lies between, too. */
enum { CHUNK = 1 << 14, CHUNKS = 96, ALIGNMENT = 4 << 20, THRESHOLD = 1 << 20 };

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), chunks = chunked(CHUNK), events = new_events();
    hid_t alone = transfer_list(false);
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "ind_wr_buffer_size", "16777216");
    OK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, info));
    MPI_Info_free(&info);
    OK(H5Pset_alignment(access, THRESHOLD, ALIGNMENT));
    hid_t file = H5Fcreate("x.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
    OK(file);
    hid_t between = create_parts(file, "between", H5P_DEFAULT);
    int *mine = values(EACH, seed_of(rank, 1));
    hold_bytes();
    write_part(between, mine, alone, events);
    wait_for_held_bytes();
    let_go_on_when_read();
    const hsize_t extent = (hsize_t)CHUNK * CHUNKS;
    hid_t space = H5Screate_simple(1, &extent, NULL);
    hid_t filled = H5Dcreate2(file, "filled", H5T_NATIVE_INT, space, H5P_DEFAULT, chunks, H5P_DEFAULT);
    OK(filled);
    has_let_go_on();
    close_events(events);
    OK(H5Sclose(space));
    OK(H5Dclose(between));
    OK(H5Dclose(filled));
    OK(H5Fclose(file));
    OK(H5Pclose(access));
    OK(H5Pclose(chunks));
    OK(H5Pclose(alone));
    free(mine);
    check_parts("x.h5", "between", 1);
    return end_ranks();
}
