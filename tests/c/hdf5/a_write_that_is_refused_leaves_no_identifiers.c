#include "hdf5_calls.h"

typedef int visit_t(hid_t, void *);
typedef int iterate_t(int, visit_t *, void *);

static int count(hid_t id, void *number) {
    (void)id;
    ++*(int *)number;
    return 0;
}

/* Datatypes and dataspaces, which have these numbers. */
static int open_identifiers(void) {
    int number = 0;
    CHECK(CALL(iterate_t *, H5Iiterate)(3, count, &number) >= 0);
    CHECK(CALL(iterate_t *, H5Iiterate)(4, count, &number) >= 0);
    return number;
}

/* Only HDF5 writes a compact dataset, with copies of the identifiers. */
int main(void) {
    load_hdf5();
    const hsize_t shape[2] = {4, 6}, start[2] = {1, 1}, one[2] = {1, 1}, sides[2] = {2, 3};
    hid_t file = CALL(create_t *, H5Fcreate)("refused.h5", 2 /* H5F_ACC_TRUNC */, 0, 0);
    hid_t plist = CALL(class_t *, H5Pcreate)(id_of("H5P_CLS_DATASET_CREATE_ID_g"));
    CHECK(CALL(level_t *, H5Pset_layout)(plist, 0 /* H5D_COMPACT */) >= 0);
    hid_t space = CALL(space_t *, H5Screate_simple)(2, shape, NULL);
    hid_t type = id_of("H5T_NATIVE_INT_g");
    hid_t dataset = CALL(dataset_t *, H5Dcreate2)(file, "x", type, space, 0, plist, 0);
    CHECK(dataset > 0);
    hid_t part = slab(shape, start, one, sides);

    const int before = open_identifiers();
    CHECK(penstock_dataset_write(dataset, type, part, part, 0, NULL, NULL, NULL, NULL) ==
          PENSTOCK_ERR_INVALID);
    CHECK(open_identifiers() == before);

    CHECK(CALL(close_t *, H5Sclose)(part) >= 0);
    CHECK(CALL(close_t *, H5Sclose)(space) >= 0);
    CHECK(CALL(close_t *, H5Pclose)(plist) >= 0);
    CHECK(CALL(close_t *, H5Dclose)(dataset) >= 0);
    CHECK(CALL(close_t *, H5Fclose)(file) >= 0);
    return 0;
}
