#include "failing_filter.h"

/* HDF5 frees such a dataset, but keeps its identifier unless H5Dclose was called. */
int main(void) {
    begin_with("");
    for (int round = 0; round < 4; round++) {
        hid_t file = make_file("file.h5"), dataset = dataset_that_fails(file, "x");
        if (round % 2 == 0) OK(H5Idec_ref(dataset));
        else OK(H5Oclose(dataset));
        CHECK(H5Iis_valid(dataset) == 0);
        CHECK(H5Fget_obj_count(file, H5F_OBJ_ALL) == 1);
        if (round < 2) {
            CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) < 0);
            CHECK_ERROR_SAYS("close the dataset");
            OK(H5Eclear2(H5E_DEFAULT));
            OK(H5Fclose(file));
        } else {
            CHECK(H5Fclose(file) < 0);
            CHECK_ERROR_SAYS("close the dataset");
            OK(H5Eclear2(H5E_DEFAULT));
            OK(H5Fclose(file));
        }
        CHECK(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);
    }
    return 0;
}
