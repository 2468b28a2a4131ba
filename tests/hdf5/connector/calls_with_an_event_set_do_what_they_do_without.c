#include "objects.h"

int main(void) {
    begin();
    hid_t events = H5EScreate();
    OK(events);
    hid_t file = H5Fcreate_async("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT, events);
    OK(file);
    hsize_t count = 100;
    hid_t space = H5Screate_simple(1, &count, NULL);
    hid_t dataset = H5Dcreate_async(file, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT,
                                    H5P_DEFAULT, events);
    OK(dataset);
    int *these = values(count, 1);
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, these, events));
    OK(H5Dclose_async(dataset, events));
    OK(H5Fclose_async(file, events));
    size_t left = 1;
    hbool_t failed = true;
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(left == 0 && !failed);
    OK(H5ESclose(events));
    free(these);

    file = H5Fopen("file.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    OK(file);
    CHECK(has_values(file, "x", 100, 1));
    OK(H5Fclose(file));
    OK(H5Sclose(space));
    return 0;
}
