#include "../rows.h"

/* Its space becomes that of other data and of HDF5's own. */
int main(void) {
    begin();
    hid_t file = create_file("file.h5");
    for (int turn = 0; turn < 20; turn++) {
        hid_t dataset = create_rows(file, "x");
        write_rows(dataset, 0, 100, 1, turn);
        OK(H5Dclose(dataset));
        OK(H5Ldelete(file, "x", H5P_DEFAULT));
        char name[16];
        snprintf(name, sizeof name, "%d", turn);
        hid_t group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        OK(group);
        put_values(group, "y", 1000, turn);
        OK(H5Gclose(group));
    }
    OK(H5Fclose(file));
    file = open_by_sec2("file.h5", H5F_ACC_RDONLY);
    for (int turn = 0; turn < 20; turn++) {
        char name[16];
        snprintf(name, sizeof name, "%d/y", turn);
        CHECK(has_values(file, name, 1000, turn));
    }
    OK(H5Fclose(file));
    return 0;
}
