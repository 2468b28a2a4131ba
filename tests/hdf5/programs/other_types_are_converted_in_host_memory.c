#include "../check.h"

int main(void) {
    begin();
    hid_t file = create_file("file.h5");
    const hsize_t count = 50000;
    hid_t space = H5Screate_simple(1, &count, NULL);
    hid_t dataset = H5Dcreate2(file, "x", H5T_IEEE_F64BE, space, H5P_DEFAULT, H5P_DEFAULT,
                               H5P_DEFAULT);
    OK(dataset);
    int *these = values(count, 1);
    OK(write_whole(dataset, these));
    OK(H5Dclose(dataset));
    CHECK(has_values(file, "x", count, 1));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", count, 1));
    free(these);
    return 0;
}
