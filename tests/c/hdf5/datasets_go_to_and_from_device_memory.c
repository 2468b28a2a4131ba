#include "hdf5_calls.h"

int main(void) {
    need_gpu();
    load_hdf5();
    hid_t file, from = new_dataset("from.h5", 1, &file);
    hid_t other, to = new_dataset("to.h5", 0, &other);
    hid_t type = id_of("H5T_NATIVE_INT_g");

    static int values[ROWS][COLUMNS];
    void *device = NULL;
    OK(penstock_device_alloc(0, sizeof values, &device));
    OK(penstock_dataset_read(from, type, 0, 0, 0, device, NULL, NULL, NULL));
    OK(penstock_copy(values, device, sizeof values));
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) CHECK(values[r][c] == value_at(r, c));

    OK(penstock_dataset_write(to, type, 0, 0, 0, device, NULL, NULL, NULL));
    memset(values, 0, sizeof values);
    CHECK(CALL(read_t *, H5Dread)(to, type, 0, 0, 0, values) >= 0);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) CHECK(values[r][c] == value_at(r, c));
    OK(penstock_device_free(device));
    return 0;
}
