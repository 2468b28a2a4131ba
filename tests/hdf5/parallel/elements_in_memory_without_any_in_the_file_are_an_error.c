#include "ranks.h"

/* A transfer that selects nothing in the file but one element in memory fails, as by HDF5, and moves nothing. */
int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), dataset = create_parts(file, "a", H5P_DEFAULT);
    hid_t list = transfer_list(false), none = H5Dget_space(dataset), one = H5Screate(H5S_SCALAR);
    OK(H5Sselect_none(none));
    int value = 7;
    CHECK(H5Dwrite(dataset, H5T_NATIVE_INT, one, none, list, &value) < 0);
    CHECK(H5Dread(dataset, H5T_NATIVE_INT, one, none, list, &value) < 0);
    CHECK(value == 7);
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, none, none, list, NULL));
    OK(H5Sclose(one));
    OK(H5Sclose(none));
    OK(H5Pclose(list));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    return end_ranks();
}
