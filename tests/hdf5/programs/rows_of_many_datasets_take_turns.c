#include "../rows.h"

enum { DATASETS = 40 };

/* More than the driver has blocks for. */
int main(void) {
    begin();
    hid_t file = create_file("file.h5"), datasets[DATASETS];
    for (int i = 0; i < DATASETS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        datasets[i] = create_rows(file, name);
    }
    for (size_t row = 0; row < 500; row++)
        for (int i = 0; i < DATASETS; i++) OK(write_row(datasets[i], row, i));
    for (size_t row = 0; row < 500; row++)
        for (int i = 0; i < DATASETS; i++) CHECK(is_row(datasets[i], row, i));
    for (int i = 0; i < DATASETS; i++) {
        haddr_t start = H5Dget_offset(datasets[i]);
        OK(H5Dclose(datasets[i]));
        OK(H5Fflush(file, H5F_SCOPE_LOCAL));
        CHECK(file_has_rows("file.h5", start, 0, 500, 1, i));
    }
    OK(H5Fclose(file));
    return 0;
}
