#include "../rows.h"

/* Rows of two datasets come in turns, and what lies between them in the file is changed by another handle
 * meanwhile. */
int main(void) {
    begin();
    enum { BETWEEN = 50 };
    hid_t file = create_file("file.h5"), before = create_rows(file, "before");
    put_values(file, "between", BETWEEN * ROW, 1);
    hid_t between = H5Dopen2(file, "between", H5P_DEFAULT), after = create_rows(file, "after");
    haddr_t start = H5Dget_offset(between), end = H5Dget_offset(after);
    CHECK(start == H5Dget_offset(before) + VALUES * sizeof(int));
    CHECK(end == start + BETWEEN * ROW * sizeof(int));
    OK(H5Fflush(file, H5F_SCOPE_LOCAL));

    for (int seed = 2; seed < 40; seed++) {
        write_rows(before, ROWS - 10, ROWS, 1, seed);
        write_rows(after, 0, 10, 1, seed);
        change_file("file.h5", start, seed, seed);
        write_rows(before, ROWS - 20, ROWS - 10, 1, seed);
        write_rows(after, 10, 20, 1, seed);
        OK(H5Fflush(file, H5F_SCOPE_LOCAL));
        CHECK(file_has_rows("file.h5", start, seed, seed + 1, 1, seed));
        CHECK(file_has_rows("file.h5", end, 0, 20, 1, seed));
    }
    CHECK(are_rows(before, ROWS - 20, ROWS, 1, 39));
    OK(H5Dclose(before));
    OK(H5Dclose(between));
    OK(H5Dclose(after));
    OK(H5Fclose(file));
    return 0;
}
