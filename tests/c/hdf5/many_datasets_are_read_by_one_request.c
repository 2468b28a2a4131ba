#include "hdf5_calls.h"

enum { COUNT = 40, LENGTH = 5000 };

typedef struct {
    hid_t file, group;
    hid_t datasets[COUNT];
    char names[COUNT][16];
} datasets_t;

static int element(int dataset, int index) { return dataset * 100000 + index; }

/* Every second dataset has chunks of gzip. */
static datasets_t make_datasets(const char *path) {
    static int values[LENGTH];
    const hsize_t shape[1] = {LENGTH}, chunk[1] = {700};
    datasets_t made;
    made.file = CALL(create_t *, H5Fcreate)(path, 2 /* H5F_ACC_TRUNC */, 0, 0);
    typedef hid_t group_t(hid_t, const char *, hid_t, hid_t, hid_t);
    made.group = CALL(group_t *, H5Gcreate2)(made.file, "g", 0, 0, 0);
    hid_t space = CALL(space_t *, H5Screate_simple)(1, shape, NULL);
    hid_t plist = CALL(class_t *, H5Pcreate)(id_of("H5P_CLS_DATASET_CREATE_ID_g"));
    CHECK(CALL(chunk_t *, H5Pset_chunk)(plist, 1, chunk) >= 0);
    CHECK(CALL(level_t *, H5Pset_deflate)(plist, 4) >= 0);
    dataset_t *create = CALL(dataset_t *, H5Dcreate2);
    write_t *write = CALL(write_t *, H5Dwrite);
    hid_t type = id_of("H5T_NATIVE_INT_g");
    for (int n = 0; n < COUNT; n++) {
        snprintf(made.names[n], sizeof made.names[n], "g/%d", n);
        hid_t dataset = create(made.group, made.names[n] + 2, type, space, 0, n % 2 ? plist : 0, 0);
        CHECK(dataset > 0);
        for (int i = 0; i < LENGTH; i++) values[i] = element(n, i);
        CHECK(write(dataset, type, 0, 0, 0, values) >= 0);
        made.datasets[n] = dataset;
    }
    CHECK(CALL(close_t *, H5Sclose)(space) >= 0);
    CHECK(CALL(close_t *, H5Pclose)(plist) >= 0);
    return made;
}

int main(void) {
    load_hdf5();
    datasets_t made = make_datasets("many.h5");
    hid_t type = id_of("H5T_NATIVE_INT_g");
    static int values[COUNT][LENGTH];
    const uint64_t shape[1] = {LENGTH}, part[1] = {10};
    const uint64_t points[10] = {9, 4999, 7, 0, 1, 2, 3, 100, 200, 300};
    penstock_piece pieces[COUNT];
    penstock_array arrays[COUNT];
    for (int n = 0; n < COUNT; n++) {
        const penstock_array array = PENSTOCK_ARRAY_INIT;
        arrays[n] = array;
        arrays[n].data = values[n];
        arrays[n].type = type;
        arrays[n].rank = 1;
        arrays[n].shape = shape;
        pieces[n].selection = NULL;
        pieces[n].array = &arrays[n];
    }

    /* All elements of open datasets, some of which HDF5 still holds in its cache. */
    penstock_report report = PENSTOCK_REPORT_INIT;
    OK(penstock_dataset_read_many(made.datasets, pieces, COUNT, NULL, NULL, 0, &report, NULL));
    for (int n = 0; n < COUNT; n++)
        for (int i = 0; i < LENGTH; i++) CHECK(values[n][i] == element(n, i));
    CHECK(report.bytes == sizeof values);

    /* Parts of them: a range, single elements, nothing. */
    penstock_axis axis = {100, 3, 10, NULL};
    penstock_selection range = PENSTOCK_SELECTION_INIT, some = PENSTOCK_SELECTION_INIT;
    range.rank = some.rank = 1;
    range.axes = &axis;
    some.points = points;
    some.point_count = 10;
    pieces[0].selection = &range;
    pieces[1].selection = &some;
    arrays[0].shape = arrays[1].shape = part;
    pieces[2].array = NULL;
    memset(values, 0, sizeof values);
    penstock_request *request = NULL;
    OK(penstock_dataset_read_many(made.datasets, pieces, 3, NULL, NULL, 0, NULL, &request));
    OK(penstock_request_wait(request, -1));
    penstock_request_free(request);
    for (int i = 0; i < 10; i++) {
        CHECK(values[0][i] == element(0, 100 + 3 * i));
        CHECK(values[1][i] == element(1, (int)points[i]));
    }
    for (int i = 0; i < LENGTH; i++) CHECK(values[2][i] == 0);

    /* By names, in two steps, from a file that is open only for reading. */
    close_t *close = CALL(close_t *, H5Dclose);
    for (int n = 0; n < COUNT; n++) CHECK(close(made.datasets[n]) >= 0);
    CHECK(CALL(close_t *, H5Gclose)(made.group) >= 0);
    CHECK(CALL(close_t *, H5Fclose)(made.file) >= 0);
    typedef hid_t open_file_t(const char *, unsigned, hid_t);
    hid_t file = CALL(open_file_t *, H5Fopen)("many.h5", 0, 0);
    CHECK(file > 0);
    const char *names[COUNT];
    for (int n = 0; n < COUNT; n++) {
        names[n] = made.names[n];
        pieces[n].selection = NULL;
        pieces[n].array = &arrays[n];
        arrays[n].shape = shape;
    }
    penstock_dataset_shape shapes[COUNT];
    penstock_datasets *opened = NULL;
    OK(penstock_datasets_open(file, names, NULL, COUNT, shapes, &opened));
    for (int n = 0; n < COUNT; n++) {
        CHECK(shapes[n].rank == 1 && shapes[n].lengths[0] == LENGTH);
        CHECK(shapes[n].type == shapes[0].type);
        CHECK(shapes[n].lengths == shapes[0].lengths + n);
    }
    for (int round = 0; round < 2; round++) {
        memset(values, 0, sizeof values);
        OK(penstock_datasets_read(opened, pieces, COUNT, NULL, NULL, 0, NULL, NULL));
        for (int n = 0; n < COUNT; n++)
            for (int i = 0; i < LENGTH; i++) CHECK(values[n][i] == element(n, i));
    }
    CHECK(penstock_datasets_read(opened, pieces, 1, NULL, NULL, 0, NULL, NULL) ==
          PENSTOCK_ERR_INVALID);

    /* An error names the dataset. */
    arrays[7].shape = part;
    CHECK(penstock_datasets_read(opened, pieces, COUNT, NULL, NULL, 0, NULL, NULL) ==
          PENSTOCK_ERR_INVALID);
    CHECK(strstr(last_error().message, "dataset /g/7") != NULL);
    OK(penstock_datasets_close(opened));
    CHECK(penstock_datasets_close(opened) == PENSTOCK_ERR_INVALID);
    OK(penstock_datasets_close(NULL));
    names[3] = "g/nowhere";
    CHECK(penstock_datasets_open(file, names, NULL, COUNT, shapes, &opened) == PENSTOCK_ERR_IO);
    CHECK(strstr(last_error().message, "g/nowhere") != NULL);

    /* Nothing is left open. */
    typedef ptrdiff_t count_t(hid_t, unsigned);
    CHECK(CALL(count_t *, H5Fget_obj_count)(file, 0x1f /* H5F_OBJ_ALL */) == 1);
    CHECK(CALL(close_t *, H5Fclose)(file) >= 0);
    return 0;
}
