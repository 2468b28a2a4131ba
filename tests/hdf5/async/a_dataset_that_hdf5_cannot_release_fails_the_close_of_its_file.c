#include "events.h"

/* HDF5 keeps these elements in memory until the dataset is closed. */
enum { FEW = 100 };

int main(void) {
    if (getenv("HDF5_DRIVER") != NULL) skip("the driver keeps nothing in a sieve buffer");
    begin_with("");
    hid_t file = make_file("file.h5"), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t dataset = create_dataset(file, "x", FEW, dcpl);
    off_t start = (off_t)H5Dget_offset(dataset);
    int *these = values(FEW, 1);
    OK(write_whole(dataset, these));
    fail_at(start + 4, ENOSPC);

    OK(H5Idec_ref(dataset));
    CHECK(H5Fget_obj_count(file, H5F_OBJ_ALL) == 1);
    CHECK(H5Fclose(file) < 0);
    CHECK_ERROR_SAYS("No space left on device");
    fail_no_more();
    CHECK(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) >= 0);
    OK(H5Pclose(dcpl));
    free(these);
    return 0;
}
