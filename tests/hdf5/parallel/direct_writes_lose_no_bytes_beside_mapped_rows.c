#include "ranks.h"

/* Each rank writes a column of blocks of rows, by turns with mappings of the file and past the page cache, through
 * openings that do not know of each other: of all ranks or of one, by another name, before or after the other, with
 * or without an event set. The blocks meet within pages of 2 MiB. */
enum { ROWS = 512, WIDTH = 12288 };

/* The first rank has as much of a row as all others, so that it maps rows even in a group of its own. */
static hsize_t row_length(void) { return (hsize_t)(2 * (ranks - 1)) * WIDTH; }
static hsize_t first_of(int of) { return of == 0 ? 0 : (hsize_t)(ranks - 2 + of) * WIDTH; }
static int owner_of(size_t column) {
    const int at = (int)(column / WIDTH);
    return at < ranks - 1 ? 0 : at - (ranks - 2);
}

static hid_t open_with(const char *path, MPI_Comm group, const char *options) {
    hid_t list = shared_access_with(group, options), file = H5Fopen(path, H5F_ACC_RDWR, list);
    OK(file);
    OK(H5Pclose(list));
    return file;
}

static void write_column(hid_t file, int seed, bool has_events) {
    const hsize_t start[] = {0, first_of(rank)}, size[] = {ROWS, rank == 0 ? row_length() / 2 : WIDTH};
    const size_t count = ROWS * size[1];
    hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT), space = H5Dget_space(dataset);
    hid_t memory = H5Screate_simple(2, size, NULL), events = has_events ? new_events() : H5ES_NONE;
    OK(dataset);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL));
    unsigned char *these = allocate(count);
    memset(these, seed + rank, count);
    barrier();
    OK(H5Dwrite_async(dataset, H5T_NATIVE_UCHAR, memory, space, H5P_DEFAULT, these, events));
    if (has_events) close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
    free(these);
}

static void check_columns(int seed) {
    barrier();
    if (rank == 0) {
        const size_t row = row_length();
        unsigned char *found = allocate(ROWS * row);
        hid_t file = open_by_sec2("x.h5", H5F_ACC_RDONLY), dataset = H5Dopen2(file, "x", H5P_DEFAULT);
        OK(H5Dread(dataset, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
        size_t wrong = 0;
        for (size_t i = 0; i < ROWS * row; i++) wrong += found[i] != seed + owner_of(i % row);
        CHECK(wrong == 0);
        OK(H5Dclose(dataset));
        OK(H5Fclose(file));
        free(found);
    }
    barrier();
}

static void create_dataset_of_columns(void) {
    const hsize_t extent[] = {ROWS, row_length()};
    if (rank == 0) (void)unlink("x.h5"), (void)unlink("link.h5");
    barrier();
    hid_t list = shared_access_with(MPI_COMM_WORLD, "io=mmap");
    hid_t file = H5Fcreate("x.h5", H5F_ACC_TRUNC, H5P_DEFAULT, list), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(file);
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t space = H5Screate_simple(2, extent, NULL);
    hid_t dataset = H5Dcreate2(file, "x", H5T_NATIVE_UCHAR, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Sclose(space));
    OK(H5Pclose(dcpl));
    OK(H5Pclose(list));
    if (rank == 0) CHECK(link("x.h5", "link.h5") == 0);
    barrier();
}

int main(int count, char **words) {
    static const char *const options[] = {"io=mmap", "direct=yes"};
    begin_ranks(count, words);
    for (int round = 0; round < 4; round++) {
        const bool is_direct = round % 3 == 0 ? rank % 2 : rank != 0, has_events = round & 1;
        create_dataset_of_columns();
        /* Twice by all ranks, which write by either. */
        if (round % 3 < 2) {
            hid_t first = open_with("x.h5", MPI_COMM_WORLD, options[round % 2]);
            hid_t second = open_with("x.h5", MPI_COMM_WORLD, options[!(round % 2)]);
            write_column(is_direct ? second : first, round, has_events);
            OK(H5Fclose(first));
            OK(H5Fclose(second));
        } else { /* Once by each rank, in a group of its own, by two names. */
            hid_t file = open_with(is_direct ? "link.h5" : "x.h5", MPI_COMM_SELF, options[is_direct]);
            write_column(file, round, has_events);
            barrier();
            OK(H5Fclose(file));
        }
        check_columns(round);
    }
    return end_ranks();
}
