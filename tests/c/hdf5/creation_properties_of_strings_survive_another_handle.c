#include "hdf5_calls.h"

#include <stdint.h>

typedef hid_t open_file_t(const char *, unsigned, hid_t);
typedef hid_t open_dataset_t(hid_t, const char *, hid_t);
typedef hid_t copy_t(hid_t);
typedef int size_of_t(hid_t, size_t);
typedef int fill_t(hid_t, hid_t, const void *);
typedef int layout_t(hid_t);

enum { CHUNKED = 2 };

static void make(const char *name) {
    const hsize_t shape = 20, chunk = 5;
    const char *fill = "none";
    hid_t file = CALL(create_t *, H5Fcreate)(name, 2 /* H5F_ACC_TRUNC */, 0, 0);
    hid_t text = CALL(copy_t *, H5Tcopy)(id_of("H5T_C_S1_g"));
    CHECK(CALL(size_of_t *, H5Tset_size)(text, SIZE_MAX /* H5T_VARIABLE */) >= 0);
    hid_t plist = CALL(class_t *, H5Pcreate)(id_of("H5P_CLS_DATASET_CREATE_ID_g"));
    CHECK(CALL(chunk_t *, H5Pset_chunk)(plist, 1, &chunk) >= 0);
    CHECK(CALL(fill_t *, H5Pset_fill_value)(plist, text, &fill) >= 0);
    hid_t space = CALL(space_t *, H5Screate_simple)(1, &shape, NULL);
    hid_t dataset = CALL(dataset_t *, H5Dcreate2)(file, "x", text, space, 0, plist, 0);
    CHECK(dataset > 0);
    CHECK(CALL(close_t *, H5Dclose)(dataset) >= 0);
    CHECK(CALL(close_t *, H5Sclose)(space) >= 0);
    CHECK(CALL(close_t *, H5Pclose)(plist) >= 0);
    CHECK(CALL(close_t *, H5Tclose)(text) >= 0);
    CHECK(CALL(close_t *, H5Fclose)(file) >= 0);
}

/* Gives other contents to memory that was freed. */
static void overwrite_freed_memory(void) {
    static void *taken[4000];
    for (int at = 0; at < 4000; at++) {
        size_t size = 16 + (size_t)(at % 100) * 8;
        taken[at] = malloc(size);
        CHECK(taken[at] != NULL);
        memset(taken[at], 0xff, size);
    }
    for (int at = 0; at < 4000; at++) free(taken[at]);
}

int main(void) {
    load_hdf5();
    make("strings.h5");
    open_file_t *open_file = CALL(open_file_t *, H5Fopen);
    open_dataset_t *open_dataset = CALL(open_dataset_t *, H5Dopen2);
    hid_t first = open_file("strings.h5", 0, 0), first_dataset = open_dataset(first, "x", 0);
    hid_t second = open_file("strings.h5", 0, 0), dataset = open_dataset(second, "x", 0);
    CHECK(first_dataset > 0 && dataset > 0);
    CHECK(CALL(close_t *, H5Dclose)(first_dataset) >= 0);
    CHECK(CALL(close_t *, H5Fclose)(first) >= 0);
    overwrite_freed_memory();

    hid_t list = 0;
    OK(penstock_dataset_creation_list(dataset, &list));
    CHECK(CALL(layout_t *, H5Pget_layout)(list) == CHUNKED);
    CHECK(CALL(close_t *, H5Pclose)(list) >= 0);
    CHECK(penstock_dataset_creation_list(dataset, NULL) == PENSTOCK_ERR_INVALID);
    CHECK(penstock_dataset_creation_list(second, &list) == PENSTOCK_ERR_IO);
    CHECK(CALL(close_t *, H5Dclose)(dataset) >= 0);
    CHECK(CALL(close_t *, H5Fclose)(second) >= 0);
    return 0;
}
