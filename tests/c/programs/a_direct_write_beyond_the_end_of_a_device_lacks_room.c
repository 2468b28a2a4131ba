#include "../check.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SIZE = 1 << 20 };

/* One that lasts until the returned descriptor is closed. */
static int block_device(char *path, size_t bytes) {
    make_file("backing", SIZE);
    int backing = open("backing", O_RDWR);
    CHECK(backing >= 0);
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
    char path[32];
    int device = block_device(path, sizeof path);
    penstock_options options = PENSTOCK_OPTIONS_INIT;
    OK(penstock_options_parse("direct=yes", &options));
    penstock_file *file = open_file(path, PENSTOCK_READ | PENSTOCK_WRITE);
    unsigned char *memory = allocate(2 * SIZE);
    CHECK(penstock_write(file, memory, SIZE, SIZE / 2, &options, NULL) == PENSTOCK_ERR_NO_SPACE);
    penstock_error error = last_error();
    CHECK(error.offset == SIZE && error.length == SIZE / 2);
    CHECK(error.remedy[0] != '\0');
    OK(penstock_read(file, memory, SIZE, 0, &options, NULL));
    CHECK(holds(memory, SIZE, 0));
    OK(penstock_close(file));
    free(memory);
    CHECK(close(device) == 0);
    return 0;
}
