#include "hdf5_calls.h"

int main(void) {
    load_hdf5();
    hid_t file, dataset = new_dataset("write.h5", 0, &file);
    hid_t type = id_of("H5T_NATIVE_INT_g");

    static int values[ROWS][COLUMNS];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) values[r][c] = value_at(r, c);
    OK(penstock_dataset_write(dataset, type, 0, 0, 0, values, NULL, NULL, NULL));

    /* A part of it once more, which meets chunks that are there already. */
    const hsize_t shape[2] = {ROWS, COLUMNS}, start[2] = {50, 30}, count[2] = {100, 60};
    const hsize_t one[2] = {1, 1}, origin[2] = {0, 0};
    hid_t of_file = slab(shape, start, one, count), of_memory = slab(count, origin, one, count);
    static int part[100][60];
    for (int r = 0; r < 100; r++)
        for (int c = 0; c < 60; c++) part[r][c] = -1 - r;
    OK(penstock_dataset_write(dataset, type, of_memory, of_file, 0, part, NULL, NULL, NULL));

    static int back[ROWS][COLUMNS];
    CHECK(CALL(read_t *, H5Dread)(dataset, type, 0, 0, 0, back) >= 0);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) {
            int is_part = r >= 50 && r < 150 && c >= 30 && c < 90;
            CHECK(back[r][c] == (is_part ? -1 - (r - 50) : value_at(r, c)));
        }
    CHECK(CALL(close_t *, H5Dclose)(dataset) >= 0);
    CHECK(CALL(close_t *, H5Fclose)(file) >= 0);
    return 0;
}
