#include "hdf5_calls.h"

int main(void) {
    need_gpu();
    load_hdf5();
    hid_t files[2];
    const hid_t datasets[3] = {new_dataset("a.h5", 1, &files[0]), new_dataset("b.h5", 1, &files[1]),
                               0};
    static int values[2][ROWS][COLUMNS];
    const uint64_t shape[2] = {ROWS, COLUMNS};
    void *device = NULL;
    OK(penstock_device_alloc(0, sizeof values, &device));
    penstock_piece pieces[2];
    penstock_array arrays[2];
    for (int n = 0; n < 2; n++) {
        const penstock_array array = PENSTOCK_ARRAY_INIT;
        arrays[n] = array;
        /* The second dataset comes first in memory. */
        arrays[n].data = (char *)device + (1 - n) * sizeof values[0];
        arrays[n].type = id_of("H5T_NATIVE_INT_g");
        arrays[n].rank = 2;
        arrays[n].shape = shape;
        pieces[n].selection = NULL;
        pieces[n].array = &arrays[n];
    }
    OK(penstock_dataset_read_many(datasets, pieces, 2, NULL, NULL, 0, NULL, NULL));
    OK(penstock_copy(values, device, sizeof values));
    for (int n = 0; n < 2; n++)
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS; c++) CHECK(values[n][r][c] == value_at(r, c));

    /* Arrays of one call are in one memory. */
    arrays[1].data = values[1];
    CHECK(penstock_dataset_read_many(datasets, pieces, 2, NULL, NULL, 0, NULL, NULL) ==
          PENSTOCK_ERR_INVALID);
    CHECK(strstr(last_error().message, "other memory") != NULL);
    OK(penstock_device_free(device));
    return 0;
}
