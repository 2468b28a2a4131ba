#include "ranks.h"

/* All ranks close a file whose metadata they write collectively, while writes of their rows are pending. MPI-IO
 * may write metadata by reading and writing what lies between, too. */
enum { ROUNDS = 12, WIDTH = 102 };

static void write_rows(hid_t access, const double *rows) {
    const hsize_t own[] = {WIDTH, WIDTH, WIDTH}, start[] = {0, 0, (hsize_t)rank * WIDTH};
    const hsize_t extent[] = {WIDTH, WIDTH, (hsize_t)ranks * WIDTH};
    hid_t never = H5Pcreate(H5P_DATASET_CREATE), events = new_events();
    OK(H5Pset_fill_time(never, H5D_FILL_TIME_NEVER));
    hid_t file = H5Fcreate("x.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
    OK(file);
    hid_t space = H5Screate_simple(3, extent, NULL), memory = H5Screate_simple(3, own, NULL);
    hid_t group = H5Gcreate2(file, "fields", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t dataset =
        H5Dcreate2(group, "x", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, never, H5P_DEFAULT);
    OK(dataset);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, own, NULL));
    OK(H5Dwrite_async(dataset, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, rows, events));
    OK(H5Dclose_async(dataset, events));
    OK(H5Gclose_async(group, events));
    OK(H5Fclose_async(file, events));
    close_events(events);
    OK(H5Sclose(space));
    OK(H5Sclose(memory));
    OK(H5Pclose(never));
}

static double value_of(int of, size_t index) { return of * 1e9 + (double)index; }

static void check_rows(void) {
    const size_t rows = (size_t)WIDTH * WIDTH, width = (size_t)ranks * WIDTH;
    double *found = allocate(rows * width * sizeof *found);
    hid_t file = open_by_sec2("x.h5", H5F_ACC_RDONLY), dataset = H5Dopen2(file, "fields/x", H5P_DEFAULT);
    OK(dataset);
    OK(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
    for (size_t i = 0; i < rows * width; i++)
        CHECK(found[i] == value_of((int)(i % width / WIDTH), i / width * WIDTH + i % WIDTH));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(found);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t access = shared_access();
    OK(H5Pset_all_coll_metadata_ops(access, true));
    OK(H5Pset_coll_metadata_write(access, true));
    const size_t own = (size_t)WIDTH * WIDTH * WIDTH;
    double *rows = allocate(own * sizeof *rows);
    for (size_t i = 0; i < own; i++) rows[i] = value_of(rank, i);
    for (int round = 0; round < ROUNDS; round++) {
        write_rows(access, rows);
        barrier();
        if (rank == 0) check_rows();
        barrier();
    }
    OK(H5Pclose(access));
    free(rows);
    return end_ranks();
}
