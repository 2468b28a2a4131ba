/* Delays each read and write of a file (LD_PRELOAD) while `slow_ms` is not 0. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_int ms;

void slow_ms(int now) { ms = now; }

#define SLOW(type, name, parameters, arguments)                                                    \
    type name parameters                                                                           \
    {                                                                                              \
        if (ms)                                                                                    \
            usleep(1000 * ms);                                                                     \
        return ((__typeof__(&name))dlsym(RTLD_NEXT, #name)) arguments;                             \
    }

SLOW(ssize_t, pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at))
SLOW(ssize_t, pread64, (int fd, void *to, size_t size, off64_t at), (fd, to, size, at))
SLOW(ssize_t, pwrite, (int fd, const void *from, size_t size, off_t at), (fd, from, size, at))
SLOW(ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t at), (fd, from, size, at))
SLOW(ssize_t, preadv, (int fd, const struct iovec *to, int count, off_t at), (fd, to, count, at))
SLOW(ssize_t, pwritev, (int fd, const struct iovec *from, int count, off_t at), (fd, from, count, at))
SLOW(ssize_t, preadv2, (int fd, const struct iovec *to, int count, off_t at, int flags),
     (fd, to, count, at, flags))
