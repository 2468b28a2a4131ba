#include "../memory.h"

enum { COUNT = 8000000 };

/* The application copies to the GPU without waiting, and writes what it copies. */
int main(void) {
    begin();
    need_device();
    const size_t bytes = COUNT * sizeof(int);
    int *pinned = NULL, *these = values(COUNT, 1);
    CUDA(cuMemHostAlloc, ADDRESS(&pinned), bytes, 0);
    memcpy(pinned, these, bytes);
    void *memory = device_memory(bytes);
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    CUDA(cuMemcpyHtoDAsync_v2, ADDRESS(memory), ADDRESS(pinned), bytes);
    OK(write_whole(dataset, memory));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", COUNT, 1));
    return 0;
}
