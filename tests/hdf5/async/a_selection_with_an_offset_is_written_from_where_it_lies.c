#include "events.h"

enum { ROWS = 900, COLUMNS = 1000, SELECTED = 300 * 500 + 200 * 400 };

/* The elements are two boxes, moved by H5Soffset_simple. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "d", SELECTED, H5P_DEFAULT);
    int *numbers = malloc(ROWS * COLUMNS * sizeof(int));
    int *expected = malloc(SELECTED * sizeof(int));
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        numbers[i] = i;
    }
    hsize_t shape[2] = {ROWS, COLUMNS};
    hsize_t first[2] = {10, 20}, first_size[2] = {300, 500};
    hsize_t second[2] = {400, 50}, second_size[2] = {200, 400};
    hssize_t offset[2] = {200, 300};
    hid_t space = H5Screate_simple(2, shape, NULL);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, first, NULL, first_size, NULL));
    OK(H5Sselect_hyperslab(space, H5S_SELECT_OR, second, NULL, second_size, NULL));
    OK(H5Soffset_simple(space, offset));
    int *at = expected;
    for (hsize_t row = 210; row < 510; row++) {
        for (hsize_t column = 320; column < 820; column++) {
            *at++ = (int)(row * COLUMNS + column);
        }
    }
    for (hsize_t row = 600; row < 800; row++) {
        for (hsize_t column = 350; column < 750; column++) {
            *at++ = (int)(row * COLUMNS + column);
        }
    }

    void *memory = new_memory_with(numbers, ROWS * COLUMNS * sizeof(int));
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, space, H5S_ALL, H5P_DEFAULT, memory, events));
    finish_all(events);
    int *found = malloc(SELECTED * sizeof(int));
    OK(H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
    CHECK(memcmp(found, expected, SELECTED * sizeof(int)) == 0);

    close_events(events);
    OK(H5Sclose(space));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(memory);
    return 0;
}
