#include "events.h"

#include <penstock_hdf5.h>

/* The memory is filled by a copy that the application queues and does not wait for: on the legacy
 * default stream, or on one that the transfer property list names. */
static void check(hid_t file, const char *name, bool has_stream) {
    const size_t bytes = 8 * MANY * sizeof(int);
    hid_t dataset = create_dataset(file, name, 8 * MANY, H5P_DEFAULT), events = new_events();
    hid_t dxpl = H5Pcreate(H5P_DATASET_XFER);
    int *pinned = NULL, *these = values(8 * MANY, 1);
    void *stream = NULL, *memory = device_memory(bytes);
    CUDA(cuMemHostAlloc, ADDRESS(&pinned), bytes, 0);
    memcpy(pinned, these, bytes);
    if (has_stream) {
        CUDA(cuStreamCreate, ADDRESS(&stream), 1, 0);
        CHECK(penstock_dxpl_set_stream(dxpl, stream) == PENSTOCK_OK);
    }
    CHECK(cuda_call_on("cuMemcpyHtoDAsync_v2", ADDRESS(memory), ADDRESS(pinned), bytes, stream) == 0);
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, dxpl, memory, events));
    close_events(events);
    CHECK(has_values(file, name, 8 * MANY, 1));
    OK(H5Dclose(dataset));
    OK(H5Pclose(dxpl));
    free_device_memory(memory);
    free(these);
}

int main(void) {
    begin();
    need_device();
    hid_t file = make_file("file.h5");
    check(file, "default", false);
    check(file, "own", true);
    OK(H5Fclose(file));
    return 0;
}
