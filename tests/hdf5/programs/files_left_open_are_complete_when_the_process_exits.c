#include "../check.h"

int main(int count, char **arguments) {
    begin();
    if (count > 1) {
        hid_t file = create_file("file.h5"), dcpl = H5Pcreate(H5P_DATASET_CREATE);
        const hsize_t chunk = 777;
        OK(H5Pset_chunk(dcpl, 1, &chunk));
        int *these = values(100000, 1);
        OK(write_whole(create_dataset(file, "x", 100000, dcpl), these));
        free(these);
        exit(0);
    }
    CHECK(run(arguments[0], "leaver") == 0);
    CHECK(sec2_finds_values("file.h5", "x", 100000, 1));
    return 0;
}
