#include "events.h"

/* What H5Dget_offset and H5Dget_storage_size return if they fail is also what they answer of a dataset without
 * storage. So a later call reports that an earlier write has failed. */
int main(void) {
    begin_with("implicit=1");
    hid_t file = make_file("file.h5"), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t dataset = create_dataset(file, "x", MANY, dcpl);
    haddr_t start = H5Dget_offset(dataset);
    hsize_t size = H5Dget_storage_size(dataset);
    int *these = values(MANY, 1);

    fail_at((off_t)(start + size / 2), ENOSPC);
    OK(write_whole(dataset, these));
    CHECK(H5Dget_offset(dataset) == start);
    CHECK(H5Dget_storage_size(dataset) == size);
    CHECK(H5Dflush(dataset) < 0);
    CHECK_ERROR_SAYS("No space left on device");
    fail_no_more();
    OK(H5Dflush(dataset));

    OK(H5Pclose(dcpl));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(these);
    return 0;
}
