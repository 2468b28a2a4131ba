#include "../memory.h"

enum { COUNT = 10000 };

/* HDF5 reads and writes it itself, without the driver. */
int main(void) {
    begin();
    need_device();
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), file = create_file("file.h5");
    OK(H5Pset_external(dcpl, "raw", 0, COUNT * sizeof(int)));
    hid_t dataset = create_dataset(file, "x", COUNT, dcpl);
    int *these = values(COUNT, 1);
    OK(write_whole(dataset, these));
    void *memory = device_memory(COUNT * sizeof(int));
    CHECK(read_whole(dataset, memory) < 0);
    CHECK(write_whole(dataset, memory) < 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", COUNT, 1));
    return 0;
}
