#include "../rows.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    for (size_t row = 0; row < ROWS; row++) {
        OK(write_row(dataset, row, 1));
        CHECK(is_row(dataset, row / 2, 1));
    }
    /* Backwards, and over what was written before. */
    for (size_t row = ROWS; row-- > 0;) OK(write_row(dataset, row, 2));
    CHECK(are_rows(dataset, 0, ROWS, 1, 2));
    write_rows(dataset, 0, ROWS, 3, 3);
    CHECK(are_rows(dataset, 0, ROWS, 3, 3));
    CHECK(are_rows(dataset, 1, ROWS, 3, 2));
    CHECK(are_rows(dataset, 2, ROWS, 3, 2));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    return 0;
}
