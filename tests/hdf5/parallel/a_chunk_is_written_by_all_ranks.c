#include "ranks.h"

/* One chunk, of which each rank writes a column; the last columns keep their fill value. */
enum { ROWS = 3000, WIDTH = 37, FILL = 77 };

static void check(hid_t file, const char *name, hsize_t chunk_rows, bool is_collective) {
    const hsize_t extent[] = {ROWS, (hsize_t)ranks * WIDTH + 3}, chunk[] = {chunk_rows, extent[1]};
    const int fill = FILL;
    hid_t space = H5Screate_simple(2, extent, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_chunk(dcpl, 2, chunk));
    OK(H5Pset_fill_value(dcpl, H5T_NATIVE_INT, &fill));
    hid_t dataset = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    const hsize_t start[] = {0, (hsize_t)rank * WIDTH}, size[] = {ROWS, WIDTH};
    hid_t flat = H5Screate_simple(2, size, NULL), list = transfer_list(is_collective);
    hid_t events = new_events();
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL));
    int *these = values(ROWS * WIDTH, rank);
    void *memory = new_memory_with(these, ROWS * WIDTH * sizeof *these);
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, flat, space, list, memory, events));
    CHECK_UNDER_WAY(events, 1);
    close_events(events);
    barrier();
    int *found = allocate(extent[0] * extent[1] * sizeof *found);
    OK(read_whole(dataset, found));
    for (size_t row = 0; row < ROWS; row++)
        for (size_t column = 0; column < extent[1]; column++) {
            const size_t of = column / WIDTH;
            const int expected = of == (size_t)ranks
                                     ? FILL
                                     : value_at(row * WIDTH + column % WIDTH, (int)of);
            CHECK(found[row * extent[1] + column] == expected);
        }
    barrier();
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
    OK(H5Sclose(flat));
    OK(H5Pclose(list));
    OK(H5Pclose(dcpl));
    free(found);
    free_memory(memory);
    free(these);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5");
    check(file, "one", ROWS, true);
    check(file, "one, independently", ROWS, false);
    check(file, "several", 700, true);
    check(file, "several, independently", 700, false);
    OK(H5Fclose(file));
    return end_ranks();
}
