/* Selections of a small two-dimensional dataset, written and read by the driver from memory of the
 * kind under test, each result compared with what SEC2 wrote or reads and a plain model. */
#ifndef SELECTIONS_H
#define SELECTIONS_H

#include "memory.h"

enum { ROWS = 96, COLUMNS = 80, ELEMENTS = ROWS * COLUMNS, BYTES = ELEMENTS * (int)sizeof(int) };

/* Which elements, in HDF5's order. */
typedef struct {
    hid_t space;
    size_t count;
    int at[ELEMENTS];
} selection;

static const hsize_t shape[2] = {ROWS, COLUMNS};

static inline void select_all(selection *made) {
    made->space = H5Screate_simple(2, shape, NULL);
    OK(made->space);
    made->count = ELEMENTS;
    for (int i = 0; i < ELEMENTS; i++) made->at[i] = i;
}

/* 880 elements in blocks of two rows, that cross the borders of chunks. */
static inline void select_hyperslab(selection *made, hsize_t row, hsize_t column) {
    const hsize_t start[2] = {row, column}, stride[2] = {4, 3}, count[2] = {20, 22};
    const hsize_t block[2] = {2, 1};
    select_all(made);
    OK(H5Sselect_hyperslab(made->space, H5S_SELECT_SET, start, stride, count, block));
    made->count = 0;
    for (hsize_t r = 0; r < count[0]; r++)
        for (hsize_t b = 0; b < block[0]; b++)
            for (hsize_t c = 0; c < count[1]; c++) {
                hsize_t at_row = row + r * stride[0] + b, at_column = column + c * stride[1];
                made->at[made->count++] = (int)(at_row * COLUMNS + at_column);
            }
}

/* As many points, far from each other and in no order. */
static inline void select_points(selection *made, int first) {
    static hsize_t points[880][2];
    select_all(made);
    made->count = 880;
    for (int i = 0; i < 880; i++) {
        made->at[i] = (first + i * 7919) % ELEMENTS;
        points[i][0] = (hsize_t)(made->at[i] / COLUMNS);
        points[i][1] = (hsize_t)(made->at[i] % COLUMNS);
    }
    OK(H5Sselect_elements(made->space, H5S_SELECT_SET, 880, &points[0][0]));
}

static inline void forget(selection *made) { OK(H5Sclose(made->space)); }

/* How a dataset is made and opened, and how its elements travel. */
typedef struct {
    hid_t dcpl, dapl, dxpl;
} layout;

/* Writes base values by SEC2; by the driver the selected elements; and finds both by SEC2. */
static inline void check_write(const char *path, layout how, const selection *in_file,
                               const selection *in_memory) {
    int *expected = values(ELEMENTS, 1), *source = values(ELEMENTS, 2);
    hid_t fapl = sec2(), file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    hid_t space = H5Screate_simple(2, shape, NULL);
    hid_t dataset =
        H5Dcreate2(file, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, how.dcpl, H5P_DEFAULT);
    OK(dataset);
    OK(write_whole(dataset, expected));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));

    file = open_file(path, H5F_ACC_RDWR);
    dataset = H5Dopen2(file, "x", how.dapl);
    OK(dataset);
    void *memory = new_memory_with(source, BYTES);
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, in_memory->space, in_file->space, how.dxpl, memory));
    for (size_t i = 0; i < in_file->count; i++) expected[in_file->at[i]] = source[in_memory->at[i]];
    CHECK(memory_holds(memory, source, BYTES));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));

    int *found = allocate(BYTES);
    file = H5Fopen(path, H5F_ACC_RDONLY, fapl);
    OK(file);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(read_whole(dataset, found));
    CHECK(memcmp(found, expected, BYTES) == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Sclose(space));
    OK(H5Pclose(fapl));
    free_memory(memory);
    free(found);
    free(source);
    free(expected);
}

/* Reads the selected elements of the file that check_write left by the driver; what is not selected
 * of the memory stays. */
static inline void check_read(const char *path, layout how, const selection *in_file,
                              const selection *in_memory) {
    int *stored = allocate(BYTES), *expected = values(ELEMENTS, 3);
    hid_t file = open_by_sec2(path, H5F_ACC_RDONLY), dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(read_whole(dataset, stored));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));

    file = open_file(path, H5F_ACC_RDONLY);
    dataset = H5Dopen2(file, "x", how.dapl);
    OK(dataset);
    void *memory = new_memory_with(expected, BYTES);
    OK(H5Dread(dataset, H5T_NATIVE_INT, in_memory->space, in_file->space, how.dxpl, memory));
    for (size_t i = 0; i < in_file->count; i++) expected[in_memory->at[i]] = stored[in_file->at[i]];
    CHECK(memory_holds(memory, expected, BYTES));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(memory);
    free(expected);
    free(stored);
}

static inline void check_both(layout how, const selection *in_file, const selection *in_memory) {
    check_write("file.h5", how, in_file, in_memory);
    check_read("file.h5", how, in_file, in_memory);
}

static inline void check_whole(layout how) {
    static selection all;
    select_all(&all);
    check_both(how, &all, &all);
    forget(&all);
}

static inline void check_hyperslabs(layout how) {
    static selection in_file, in_memory;
    select_hyperslab(&in_file, 3, 5);
    select_hyperslab(&in_memory, 1, 2);
    check_both(how, &in_file, &in_memory);
    forget(&in_file);
    forget(&in_memory);
}

static inline void check_hyperslabs_and_points(layout how) {
    static selection in_file[2], in_memory[2];
    select_hyperslab(&in_file[0], 3, 5);
    select_points(&in_file[1], 11);
    select_hyperslab(&in_memory[0], 1, 2);
    select_points(&in_memory[1], 4711);
    for (int f = 0; f < 2; f++)
        for (int m = 0; m < 2; m++) check_both(how, &in_file[f], &in_memory[m]);
    for (int i = 0; i < 2; i++) {
        forget(&in_file[i]);
        forget(&in_memory[i]);
    }
}

/* A layout in chunks that do not divide the dataset, by default. */
static inline layout chunked(void) {
    const hsize_t chunk[2] = {32, 24};
    layout how = {H5Pcreate(H5P_DATASET_CREATE), H5Pcreate(H5P_DATASET_ACCESS), H5P_DEFAULT};
    OK(how.dcpl);
    OK(how.dapl);
    OK(H5Pset_chunk(how.dcpl, 2, chunk));
    return how;
}

#endif
