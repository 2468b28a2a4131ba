/* Rows of a one-dimensional dataset of integers, moved by one call each, and the file as read(2) finds
 * it. Rows follow each other closely, so the driver may join them. */
#ifndef ROWS_H
#define ROWS_H

#include "faults.h"

#include <time.h>

enum { ROW = 2, ROWS = 5000, VALUES = ROW * ROWS };

/* Allocated at once and never filled, so that nothing but rows is written to it. */
static inline hid_t create_rows(hid_t file, const char *name) {
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t dataset = create_dataset(file, name, VALUES, dcpl);
    OK(H5Pclose(dcpl));
    return dataset;
}

static inline herr_t move_row(hid_t dataset, size_t row, void *memory, bool is_write) {
    hsize_t start = row * ROW, count = ROW, all = VALUES;
    hid_t file_space = H5Screate_simple(1, &all, NULL), space = H5Screate_simple(1, &count, NULL);
    OK(H5Sselect_hyperslab(file_space, H5S_SELECT_SET, &start, NULL, &count, NULL));
    herr_t status =
        is_write ? H5Dwrite(dataset, H5T_NATIVE_INT, space, file_space, H5P_DEFAULT, memory)
                 : H5Dread(dataset, H5T_NATIVE_INT, space, file_space, H5P_DEFAULT, memory);
    /* Another call would clear the error stack. */
    if (status < 0) return status;
    OK(H5Sclose(file_space));
    OK(H5Sclose(space));
    return status;
}

static inline herr_t write_row(hid_t dataset, size_t row, int seed) {
    int these[ROW];
    for (size_t i = 0; i < ROW; i++) these[i] = value_at(row * ROW + i, seed);
    return move_row(dataset, row, these, true);
}

static inline void write_rows(hid_t dataset, size_t first, size_t end, size_t step, int seed) {
    for (size_t row = first; row < end; row += step) OK(write_row(dataset, row, seed));
}

static inline bool is_row(hid_t dataset, size_t row, int seed) {
    int found[ROW];
    OK(move_row(dataset, row, found, false));
    return found[0] == value_at(row * ROW, seed) && found[1] == value_at(row * ROW + 1, seed);
}

static inline bool are_rows(hid_t dataset, size_t first, size_t end, size_t step, int seed) {
    bool are = true;
    for (size_t row = first; row < end; row += step) are = are && is_row(dataset, row, seed);
    return are;
}

/* By a descriptor of its own, past every library. */
static inline bool file_has_rows(const char *path, haddr_t start, size_t first, size_t end,
                                 size_t step, int seed) {
    int *found = allocate(VALUES * sizeof *found), descriptor = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(descriptor >= 0);
    memset(found, 0, VALUES * sizeof *found);
    CHECK(syscall(SYS_pread64, descriptor, found, VALUES * sizeof *found, start) >= 0);
    CHECK(close(descriptor) == 0);
    bool has = true;
    for (size_t row = first; row < end; row += step)
        for (size_t i = row * ROW; i < (row + 1) * ROW; i++)
            has = has && found[i] == value_at(i, seed);
    free(found);
    return has;
}

static inline void change_file(const char *path, haddr_t start, size_t row, int seed) {
    int these[ROW], descriptor = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(descriptor >= 0);
    for (size_t i = 0; i < ROW; i++) these[i] = value_at(row * ROW + i, seed);
    off_t offset = (off_t)(start + row * sizeof these);
    CHECK(syscall(SYS_pwrite64, descriptor, these, sizeof these, offset) == sizeof these);
    CHECK(close(descriptor) == 0);
}

static inline void pass_time(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    CHECK(nanosleep(&time, NULL) == 0);
}

#endif
