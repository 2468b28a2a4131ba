/* The kernel tells no length of a block device by fstat(2). */
#include "../memory.h"
#include "../../loop_device.h"

enum { COUNT = 3 * 1000 * 1000 };

int main(void) {
    begin();
    (void)is_on_device();
    char path[32];
    int backing = open("backing", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(backing >= 0 && ftruncate(backing, 64 << 20) == 0 && close(backing) == 0);
    int device = block_device("backing", path, sizeof path), *these = values(COUNT, 1);
    hid_t file = create_file(path), dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    void *memory = new_memory_with(these, COUNT * sizeof *these);
    OK(write_whole(dataset, memory));
    void *found = new_memory(COUNT * sizeof *these);
    OK(read_whole(dataset, found));
    CHECK(memory_has_values(found, COUNT, 1));
    OK(H5Dclose(dataset));
    (void)H5Fclose(file); /* A device cannot be cut to length, and HDF5 may find that an error. */
    free_memory(found);
    free_memory(memory);
    free(these);
    CHECK(close(device) == 0);
    return 0;
}
