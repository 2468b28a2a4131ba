#include "hdf5_calls.h"

int main(void) {
    load_hdf5();
    int value = 0;
    penstock_error error = {0};
    error.struct_size = sizeof error;
    CHECK(penstock_dataset_read(12345, id_of("H5T_NATIVE_INT_g"), 0, 0, 0, &value, NULL, NULL,
                                NULL) == PENSTOCK_ERR_IO);
    OK(penstock_last_error(&error));
    CHECK(strstr(error.cause, "HDF5") != NULL);
    return 0;
}
