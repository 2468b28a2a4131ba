/* The few functions of HDF5 that the programs here call, taken from the copy that the environment
 * variable PENSTOCK_TEST_HDF5 names: no header of HDF5 is needed, as penstock.h needs none. */
#ifndef HDF5_CALLS_H
#define HDF5_CALLS_H

#include "../check.h"

#include <dlfcn.h>

typedef penstock_hid hid_t;
typedef unsigned long long hsize_t;

static void *hdf5;

/* ISO C has no cast from an object pointer to a function pointer. */
#define CALL(type, name) (*(type *)hdf5_symbol(#name))

static inline void *hdf5_symbol(const char *name) {
    static void *places[64];
    static int used;
    void *symbol = dlsym(hdf5, name);
    if (symbol == NULL || used == 64) fail(__FILE__, __LINE__, name);
    places[used] = symbol;
    return &places[used++];
}

typedef int open_t(void);
typedef hid_t create_t(const char *, unsigned, hid_t, hid_t);
typedef hid_t class_t(hid_t);
typedef int chunk_t(hid_t, int, const hsize_t *);
typedef int level_t(hid_t, unsigned);
typedef int shuffle_t(hid_t);
typedef hid_t space_t(int, const hsize_t *, const hsize_t *);
typedef hid_t dataset_t(hid_t, const char *, hid_t, hid_t, hid_t, hid_t, hid_t);
typedef int write_t(hid_t, hid_t, hid_t, hid_t, hid_t, const void *);
typedef int read_t(hid_t, hid_t, hid_t, hid_t, hid_t, void *);
typedef int slab_t(hid_t, int, const hsize_t *, const hsize_t *, const hsize_t *, const hsize_t *);
typedef int close_t(hid_t);

static inline hid_t id_of(const char *variable) {
    hid_t *place = dlsym(hdf5, variable);
    CHECK(place != NULL);
    return *place;
}

static inline void load_hdf5(void) {
    const char *path = getenv("PENSTOCK_TEST_HDF5");
    if (path == NULL) skip("PENSTOCK_TEST_HDF5 names no HDF5");
    hdf5 = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(hdf5 != NULL);
    CHECK(CALL(open_t *, H5open)() >= 0);
}

enum { ROWS = 300, COLUMNS = 200 };

static inline int value_at(int row, int column) { return row * 1000 + column; }

/* A file with a dataset of 32-bit integers, big-endian, in chunks of gzip; its values are written
 * by HDF5 on request. */
static inline hid_t new_dataset(const char *name, int with_values, hid_t *file) {
    const hsize_t shape[2] = {ROWS, COLUMNS}, chunk[2] = {64, 48};
    *file = CALL(create_t *, H5Fcreate)(name, 2 /* H5F_ACC_TRUNC */, 0, 0);
    CHECK(*file > 0);
    hid_t plist = CALL(class_t *, H5Pcreate)(id_of("H5P_CLS_DATASET_CREATE_ID_g"));
    CHECK(CALL(chunk_t *, H5Pset_chunk)(plist, 2, chunk) >= 0);
    CHECK(CALL(shuffle_t *, H5Pset_shuffle)(plist) >= 0);
    CHECK(CALL(level_t *, H5Pset_deflate)(plist, 4) >= 0);
    hid_t space = CALL(space_t *, H5Screate_simple)(2, shape, NULL);
    hid_t dataset =
        CALL(dataset_t *, H5Dcreate2)(*file, "x", id_of("H5T_STD_I32BE_g"), space, 0, plist, 0);
    CHECK(dataset > 0);
    if (with_values) {
        static int values[ROWS][COLUMNS];
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS; c++) values[r][c] = value_at(r, c);
        CHECK(CALL(write_t *, H5Dwrite)(dataset, id_of("H5T_NATIVE_INT_g"), 0, 0, 0, values) >= 0);
    }
    CHECK(CALL(close_t *, H5Sclose)(space) >= 0);
    CHECK(CALL(close_t *, H5Pclose)(plist) >= 0);
    return dataset;
}

static inline hid_t slab(const hsize_t *shape, const hsize_t *start, const hsize_t *stride,
                         const hsize_t *count) {
    hid_t space = CALL(space_t *, H5Screate_simple)(2, shape, NULL);
    CHECK(CALL(slab_t *, H5Sselect_hyperslab)(space, 0, start, stride, count, NULL) >= 0);
    return space;
}

#endif
