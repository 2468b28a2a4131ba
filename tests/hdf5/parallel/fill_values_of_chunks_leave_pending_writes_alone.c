#include "ranks.h"

/* HDF5 writes new chunks collectively with their fill values, and those with filters at any fill time: when it creates
 * a dataset, and when it opens one whose storage a single process has left out. Some of the chunks lie in the gap that
 * an alignment has left before another dataset. MPI-IO may write them by reading and writing what lies between, too. */
enum { CHUNK = 1 << 14, CHUNKS = 96, ALIGNMENT = 4 << 20, THRESHOLD = 1 << 20 };

static hid_t create_filled(hid_t file, hid_t chunks) {
    const hsize_t extent = (hsize_t)CHUNK * CHUNKS;
    hid_t space = H5Screate_simple(1, &extent, NULL);
    hid_t filled = H5Dcreate2(file, "filled", H5T_NATIVE_INT, space, H5P_DEFAULT, chunks, H5P_DEFAULT);
    OK(filled);
    OK(H5Sclose(space));
    return filled;
}

static void create_without_storage(const char *path) {
    hid_t access = sec2(), chunks = chunked(CHUNK), file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    OK(file);
    OK(H5Pset_alloc_time(chunks, H5D_ALLOC_TIME_INCR));
    OK(H5Dclose(create_filled(file, chunks)));
    OK(H5Pclose(chunks));
    OK(H5Fclose(file));
    OK(H5Pclose(access));
}

static hid_t aligned_access(void) {
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "ind_wr_buffer_size", "16777216");
    OK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, info));
    MPI_Info_free(&info);
    OK(H5Pset_alignment(access, THRESHOLD, ALIGNMENT));
    return access;
}

/* With a creation list the dataset is created, else it is opened. */
static void fill_beside_a_write(const char *path, hid_t file, hid_t chunks) {
    hid_t events = new_events(), alone = transfer_list(false);
    hid_t between = create_parts(file, "between", H5P_DEFAULT);
    int *mine = values(EACH, seed_of(rank, 1));
    hold_bytes();
    write_part(between, mine, alone, events);
    wait_for_held_bytes();
    let_go_on_when_read();
    hid_t filled = chunks < 0 ? H5Dopen2(file, "filled", H5P_DEFAULT) : create_filled(file, chunks);
    OK(filled);
    has_let_go_on();
    close_events(events);
    OK(H5Dclose(between));
    OK(H5Dclose(filled));
    OK(H5Fclose(file));
    OK(H5Pclose(alone));
    free(mine);
    check_parts(path, "between", 1);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t access = aligned_access();
    for (int has_filter = 0; has_filter < 2; has_filter++) {
        hid_t chunks = chunked(CHUNK), file = H5Fcreate("x.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
        OK(file);
        if (has_filter) {
            OK(H5Pset_fletcher32(chunks));
            OK(H5Pset_alloc_time(chunks, H5D_ALLOC_TIME_EARLY));
            OK(H5Pset_fill_time(chunks, H5D_FILL_TIME_NEVER));
        }
        fill_beside_a_write("x.h5", file, chunks);
        OK(H5Pclose(chunks));
    }
    if (rank == 0) create_without_storage("y.h5");
    barrier();
    hid_t file = H5Fopen("y.h5", H5F_ACC_RDWR, access);
    OK(file);
    fill_beside_a_write("y.h5", file, -1);
    OK(H5Pclose(access));
    return end_ranks();
}
