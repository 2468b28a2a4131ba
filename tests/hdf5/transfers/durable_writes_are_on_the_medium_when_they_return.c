/* This program intercepts the system calls of all libraries, and records the writes and the syncs to
 * the medium of the file and of its folder. */
#include "../memory.h"

#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static _Atomic bool is_cached, is_named;

ssize_t pwrite64(int descriptor, const void *memory, size_t bytes, off64_t offset) {
    is_cached = true;
    return syscall(SYS_pwrite64, descriptor, memory, bytes, offset);
}

ssize_t pwrite(int descriptor, const void *memory, size_t bytes, off_t offset) {
    return pwrite64(descriptor, memory, bytes, offset);
}

int ftruncate64(int descriptor, off64_t length) {
    is_cached = true;
    return (int)syscall(SYS_ftruncate, descriptor, length);
}

int ftruncate(int descriptor, off_t length) { return ftruncate64(descriptor, length); }

int fdatasync(int descriptor) {
    is_cached = false;
    return (int)syscall(SYS_fdatasync, descriptor);
}

int fsync(int descriptor) {
    struct stat status;
    is_named |= fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
    return (int)syscall(SYS_fsync, descriptor);
}

static void write_and_look(size_t count) {
    int *these = values(count, 1);
    void *memory = new_memory_with(these, count * sizeof *these);
    hid_t file = create_file("file.h5");
    hid_t dataset = create_dataset(file, "x", count, H5P_DEFAULT);
    OK(write_whole(dataset, memory));
    CHECK(!is_cached);
    CHECK(is_named);
    OK(H5Dclose(dataset));
    OK(H5Gclose(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    CHECK(!is_cached);
    OK(H5Gclose(H5Gcreate2(file, "h", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
    OK(H5Fclose(file));
    CHECK(!is_cached);
    free_memory(memory);
    free(these);
}

/* Asked for by the driver's configuration, or by Penstock's own variable. */
int main(int count, char **arguments) {
    if (count == 1) {
        is_on_device();
        CHECK(setenv("HDF5_DRIVER_CONFIG", "durable=yes", 1) == 0);
        CHECK(run(arguments[0], "look") == 0);
        CHECK(unsetenv("HDF5_DRIVER_CONFIG") == 0);
        CHECK(setenv("PENSTOCK_OPTIONS", "durable=yes", 1) == 0);
        return run(arguments[0], "look");
    }
    begin();
    write_and_look(1000);
    write_and_look(3000000);
    return 0;
}
