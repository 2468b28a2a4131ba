#include "hdf5_calls.h"

enum { COUNT = ROWS * COLUMNS };

typedef int points_t(hid_t, int, size_t, const hsize_t *);

/* Each row of an odd number goes backwards over the one before it, and so from the last of its chunks
 * to the first. */
int main(void) {
    load_hdf5();
    hid_t file, dataset = new_dataset("twice.h5", 1, &file);
    static hsize_t places[COUNT];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            places[r * COLUMNS + c] = r / 2 * COLUMNS + (r % 2 ? COLUMNS - 1 - c : c);
    const hsize_t all = COUNT;
    hid_t space = CALL(space_t *, H5Screate_simple)(1, &all, NULL);
    CHECK(CALL(points_t *, H5Sselect_elements)(space, 0 /* H5S_SELECT_SET */, COUNT, places) >= 0);

    static int found[COUNT];
    hid_t type = id_of("H5T_NATIVE_INT_g");
    OK(penstock_dataset_read(dataset, type, space, 0, 0, found, NULL, NULL, NULL));
    for (int r = 0; r < ROWS / 2; r++)
        for (int c = 0; c < COLUMNS; c++)
            CHECK(found[r * COLUMNS + c] == value_at(2 * r + 1, COLUMNS - 1 - c));
    CHECK(CALL(close_t *, H5Sclose)(space) >= 0);
    CHECK(CALL(close_t *, H5Dclose)(dataset) >= 0);
    CHECK(CALL(close_t *, H5Fclose)(file) >= 0);
    return 0;
}
