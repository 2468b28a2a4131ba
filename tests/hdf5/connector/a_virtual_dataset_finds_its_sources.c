#include "objects.h"

int main(void) {
    begin();
    hid_t source = make_file("source.h5"), file = make_file("file.h5");
    put_values(source, "x", 100, 1);
    OK(H5Fclose(source));
    hsize_t count = 100;
    hid_t space = H5Screate_simple(1, &count, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_virtual(dcpl, space, "source.h5", "x", space));
    OK(H5Dclose(create_dataset(file, "virtual", count, dcpl)));
    CHECK(has_values(file, "virtual", 100, 1));
    OK(H5Pclose(dcpl));
    OK(H5Sclose(space));
    OK(H5Fclose(file));
    return 0;
}
