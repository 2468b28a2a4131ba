#include "events.h"

/* Bands of columns: between two rows of one lie the others, which blocks that are read and written as a
 * whole would bring back as they were. */
enum { SIDE = 512, BANDS = 8, WIDTH = SIDE / BANDS, ROUNDS = 8 };

static void write_band(hid_t dataset, const int *whole, hsize_t band, hid_t events) {
    const hsize_t sides[] = {SIDE, SIDE}, start[] = {0, band * WIDTH}, count[] = {SIDE, WIDTH};
    hid_t of_file = H5Screate_simple(2, sides, NULL), of_memory = H5Screate_simple(2, count, NULL);
    OK(of_file);
    OK(of_memory);
    OK(H5Sselect_hyperslab(of_file, H5S_SELECT_SET, start, NULL, count, NULL));
    int *own = allocate(SIDE * WIDTH * sizeof *own);
    for (size_t row = 0; row < SIDE; row++)
        memcpy(own + row * WIDTH, whole + row * SIDE + start[1], WIDTH * sizeof *own);
    void *memory = new_memory_with(own, SIDE * WIDTH * sizeof *own);
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, of_memory, of_file, H5P_DEFAULT, memory, events));
    free_memory(memory);
    free(own);
    OK(H5Sclose(of_memory));
    OK(H5Sclose(of_file));
}

static void write_bands(hid_t file, const char *name, hid_t type) {
    const hsize_t sides[] = {SIDE, SIDE};
    hid_t events = new_events(), space = H5Screate_simple(2, sides, NULL);
    OK(space);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(dataset);
    int *found = allocate(SIDE * SIDE * sizeof *found);
    for (int round = 1; round <= ROUNDS; round++) {
        int *whole = values(SIDE * SIDE, round);
        for (hsize_t band = 0; band < BANDS; band++) write_band(dataset, whole, band, events);
        finish_all(events);
        OK(read_whole(dataset, found));
        CHECK(memcmp(found, whole, SIDE * SIDE * sizeof *found) == 0);
        free(whole);
    }
    free(found);
    close_events(events);
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5");
    write_bands(file, "as it is", H5T_NATIVE_INT);
    write_bands(file, "converted", H5T_STD_I64BE);
    OK(H5Fclose(file));
    return 0;
}
