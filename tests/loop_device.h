/* A file as a block device. The suite's own check.h comes before. */
#ifndef LOOP_DEVICE_H
#define LOOP_DEVICE_H

#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* One that lasts until the returned descriptor is closed. */
static inline int block_device(const char *file, char *path, size_t bytes) {
    int backing = open(file, O_RDWR);
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

#endif
