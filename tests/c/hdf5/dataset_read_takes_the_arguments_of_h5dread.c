#include "hdf5_calls.h"

int main(void) {
    load_hdf5();
    hid_t file, dataset = new_dataset("read.h5", 1, &file);
    hid_t type = id_of("H5T_NATIVE_INT_g");

    static int all[ROWS][COLUMNS];
    penstock_report report = PENSTOCK_REPORT_INIT;
    OK(penstock_dataset_read(dataset, type, 0, 0, 0, all, NULL, NULL, &report));
    CHECK(report.bytes == sizeof all);
    CHECK(report.decoded_cpu > 0 && report.hdf5 == 0);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) CHECK(all[r][c] == value_at(r, c));

    /* Every third row from 10 on, into the middle of a larger array of another type. */
    const hsize_t shape[2] = {ROWS, COLUMNS}, room[2] = {60, 100};
    const hsize_t start[2] = {10, 50}, stride[2] = {3, 1}, count[2] = {40, 80};
    const hsize_t place[2] = {5, 7}, one[2] = {1, 1};
    hid_t of_file = slab(shape, start, stride, count), of_memory = slab(room, place, one, count);
    static double part[60][100];
    part[4][7] = -1;
    OK(penstock_dataset_read(dataset, id_of("H5T_NATIVE_DOUBLE_g"), of_memory, of_file, 0, part,
                             NULL, NULL, NULL));
    CHECK(part[4][7] == -1);
    for (int r = 0; r < 40; r++)
        for (int c = 0; c < 80; c++) CHECK(part[5 + r][7 + c] == value_at(10 + 3 * r, 50 + c));
    return 0;
}
