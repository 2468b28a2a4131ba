#include "hdf5_calls.h"

typedef hid_t open_file_t(const char *, unsigned, hid_t);
typedef hid_t open_dataset_t(hid_t, const char *, hid_t);

static int has_values(hid_t dataset, int factor) {
    static int back[ROWS][COLUMNS];
    CHECK(CALL(read_t *, H5Dread)(dataset, id_of("H5T_NATIVE_INT_g"), 0, 0, 0, back) >= 0);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            if (back[r][c] != factor * value_at(r, c)) return 0;
    return 1;
}

/* HDF5 restarts its identifiers, and another dataset gets one of them. */
int main(void) {
    load_hdf5();
    hid_t file, dataset = new_dataset("one.h5", 0, &file);
    static int values[ROWS][COLUMNS];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) values[r][c] = value_at(r, c);
    const uint64_t shape[2] = {ROWS, COLUMNS};
    penstock_array array = PENSTOCK_ARRAY_INIT;
    array.data = values;
    array.type = id_of("H5T_NATIVE_INT_g");
    array.rank = 2;
    array.shape = shape;
    penstock_request *request = NULL;
    OK(penstock_dataset_write_submit(dataset, 0, &array, NULL, NULL, 0, &request));
    CHECK(CALL(open_t *, H5close)() >= 0);

    CHECK(CALL(open_t *, H5open)() >= 0);
    hid_t other = new_dataset("two.h5", 0, &file);
    CHECK(other == dataset);
    int status;
    while ((status = penstock_request_watch(request, -1)) == PENSTOCK_TURN)
        penstock_request_turn(request);
    CHECK(status == PENSTOCK_OK);
    penstock_request_free(request);
    CHECK(has_values(other, 0));
    CHECK(CALL(close_t *, H5Dclose)(other) >= 0);
    CHECK(CALL(close_t *, H5Fclose)(file) >= 0);

    file = CALL(open_file_t *, H5Fopen)("one.h5", 0 /* H5F_ACC_RDONLY */, 0);
    dataset = CALL(open_dataset_t *, H5Dopen2)(file, "x", 0);
    CHECK(has_values(dataset, 1));
    CHECK(CALL(close_t *, H5Dclose)(dataset) >= 0);
    CHECK(CALL(close_t *, H5Fclose)(file) >= 0);
    return 0;
}
