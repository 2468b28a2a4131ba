#include "../rows.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    unsigned long before = calls;
    write_rows(dataset, 0, ROWS, 1, 1);
    OK(H5Fflush(file, H5F_SCOPE_LOCAL));
    CHECK(calls - before < ROWS / 50);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", VALUES, 1));

    file = open_file("file.h5", H5F_ACC_RDONLY);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    before = calls;
    CHECK(are_rows(dataset, 0, ROWS, 1, 1));
    CHECK(calls - before < ROWS / 50);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    return 0;
}
