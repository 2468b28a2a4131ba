#include "../rows.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), before = create_rows(file, "before");
    hid_t dataset = create_rows(file, "x"), after = create_rows(file, "after");
    hid_t all[3] = {before, dataset, after};
    for (int i = 0; i < 3; i++) {
        int *these = values(VALUES, 1);
        OK(write_whole(all[i], these));
        free(these);
    }
    write_rows(dataset, 1, ROWS, 2, 2);
    OK(H5Dclose(dataset));
    OK(H5Dclose(before));
    OK(H5Dclose(after));
    OK(H5Fclose(file));

    CHECK(sec2_finds_values("file.h5", "before", VALUES, 1));
    CHECK(sec2_finds_values("file.h5", "after", VALUES, 1));
    file = open_by_sec2("file.h5", H5F_ACC_RDONLY);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    CHECK(are_rows(dataset, 0, ROWS, 2, 1));
    CHECK(are_rows(dataset, 1, ROWS, 2, 2));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    return 0;
}
