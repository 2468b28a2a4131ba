/* The program intercepts the system calls of all libraries, and every other one is interrupted by a
 * signal, as happens on network file systems. */
#include "../check.h"

#include <stdarg.h>
#include <sys/file.h>
#include <sys/syscall.h>

enum { OPEN, TRUNCATE, SYNC, LOCK, REMOVE, KINDS };

static bool is_on;
static int calls[KINDS], interruptions[KINDS];

static bool is_interrupted(int kind) {
    if (!is_on || calls[kind]++ % 2) return false;
    interruptions[kind]++;
    errno = EINTR;
    return true;
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return is_interrupted(OPEN) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return is_interrupted(OPEN) ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode);
}

int ftruncate(int descriptor, off_t length) {
    return is_interrupted(TRUNCATE) ? -1 : (int)syscall(SYS_ftruncate, descriptor, length);
}

int fdatasync(int descriptor) {
    return is_interrupted(SYNC) ? -1 : (int)syscall(SYS_fdatasync, descriptor);
}

int flock(int descriptor, int how) {
    return is_interrupted(LOCK) ? -1 : (int)syscall(SYS_flock, descriptor, how);
}

int unlink(const char *path) {
    return is_interrupted(REMOVE) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int main(void) {
    CHECK(setenv("HDF5_DRIVER_CONFIG", "durable=yes", 1) == 0);
    begin();
    is_on = true;
    hid_t file = create_file("file.h5");
    put_values(file, "x", 1000, 1);
    /* The file is made as long as what is allocated. */
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    OK(H5Dclose(create_dataset(file, "y", 100000, dcpl)));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    OK(H5Fclose(file));
    file = open_file("file.h5", H5F_ACC_RDWR);
    CHECK(has_values(file, "x", 1000, 1));
    OK(H5Fclose(file));
    OK(H5Fdelete("file.h5", H5P_DEFAULT));
    is_on = false;
    for (int kind = 0; kind < KINDS; kind++) CHECK(interruptions[kind] > 0);
    return 0;
}
