#include "../selections.h"

/* The upper half lies in one file, the lower in another, in chunks. Points in no order are
 * an error of HDF5's own here, whatever the driver. */
int main(void) {
    begin();
    const hsize_t half[2] = {ROWS / 2, COLUMNS};
    hid_t fapl = sec2(), source = H5Screate_simple(2, half, NULL);
    OK(source);
    layout how = {H5Pcreate(H5P_DATASET_CREATE), H5P_DEFAULT, H5P_DEFAULT};
    for (int part = 0; part < 2; part++) {
        char name[] = "part0.h5";
        name[4] = (char)('0' + part);
        hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
        OK(file);
        hid_t dcpl = part ? chunked().dcpl : H5P_DEFAULT;
        hid_t dataset =
            H5Dcreate2(file, "x", H5T_NATIVE_INT, source, H5P_DEFAULT, dcpl, H5P_DEFAULT);
        OK(dataset);
        OK(H5Dclose(dataset));
        OK(H5Fclose(file));
        const hsize_t first[2] = {part ? half[0] : 0, 0}, one[2] = {1, 1};
        hid_t space = H5Screate_simple(2, shape, NULL);
        OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, first, NULL, one, half));
        OK(H5Pset_virtual(how.dcpl, space, name, "x", source));
        OK(H5Sclose(space));
    }
    check_whole(how);
    check_hyperslabs(how);
    return 0;
}
