#include "../memory.h"

enum { COUNT = 6000001 };

/* What the chunk cache holds is written by HDF5's own end, after CUDA's. */
int main(int count, char **arguments) {
    begin();
    if (count > 1) {
        hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), fapl = H5Pcreate(H5P_FILE_ACCESS);
        const hsize_t chunk = 2000000;
        OK(H5Pset_chunk(dcpl, 1, &chunk));
        OK(H5Pset_cache(fapl, 0, 521, 64 << 20, 0.75));
        hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
        OK(file);
        CHECK(is_driven_by_penstock(file));
        int *these = values(COUNT, 1);
        void *memory = new_memory_with(these, COUNT * sizeof(int));
        OK(write_whole(create_dataset(file, "x", COUNT, dcpl), memory));
        CHECK(size_of_file("file.h5") < 1 << 20);
        OK(write_whole(create_dataset(file, "y", COUNT, H5P_DEFAULT), memory));
        /* The stand-in has no end of its own: what a driver answers that is shutting down. */
        const char *calls = "pointer:*:4,retain:*:4,hostalloc:*:4,copy:*:4,stream:*:4,event:*:4";
        CHECK(setenv("CUDASIM_FAIL", calls, 1) == 0);
        exit(0);
    }
    (void)is_on_device();
    CHECK(run(arguments[0], "leaver") == 0);
    CHECK(sec2_finds_values("file.h5", "x", COUNT, 1));
    CHECK(sec2_finds_values("file.h5", "y", COUNT, 1));
    return 0;
}
