/* The kernel tells no length of a block device by fstat(2). */
#include "../memory.h"

#include <linux/loop.h>
#include <sys/ioctl.h>

enum { COUNT = 3 * 1000 * 1000 };

/* One that lasts until the returned descriptor is closed. */
static int block_device(char *path, size_t bytes) {
    int backing = open("backing", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(backing >= 0 && ftruncate(backing, 64 << 20) == 0);
    int control = open("/dev/loop-control", O_RDWR);
    int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
    if (number < 0) skip("no loop device to be had");
    snprintf(path, bytes, "/dev/loop%d", number);
    int device = open(path, O_RDWR);
    struct loop_config how = {.fd = (__u32)backing, .info.lo_flags = LO_FLAGS_AUTOCLEAR};
    if (device < 0 || ioctl(device, LOOP_CONFIGURE, &how) < 0) skip("no loop device to be had");
    CHECK(close(control) == 0 && close(backing) == 0);
    return device;
}

int main(void) {
    begin();
    (void)is_on_device();
    char path[32];
    int device = block_device(path, sizeof path), *these = values(COUNT, 1);
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
