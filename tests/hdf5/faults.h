/* A program that includes this intercepts the calls of all libraries to the kernel's positional reads and
 * writes, and makes them fail, transfer less or take longer, as storage does. */
#ifndef FAULTS_H
#define FAULTS_H

#include "memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* An access at or across this offset of a file ends with this errno, if one is given. */
static _Atomic long fault_at = -1;
static _Atomic int fault_errno;
/* No call moves more than this, and every other call is interrupted first, if not 0. */
static _Atomic size_t most_bytes;
static _Atomic unsigned long calls;

static inline void fail_at(off_t offset, int error) {
    fault_at = offset;
    fault_errno = error;
}

/* All accesses end with this errno. */
enum { EVERYWHERE = -2 };

static inline void fail_everywhere(int error) { fail_at(EVERYWHERE, error); }

static inline void fail_no_more(void) { fault_errno = 0; }

/* Accesses by other threads than the one that holds them wait until it, or another one, lets them go
 * on. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changes = PTHREAD_COND_INITIALIZER;
static bool is_held;
static pthread_t holder;
static int held_calls;

static inline void release_held(void) {
    pthread_mutex_lock(&gate);
    is_held = false;
    pthread_cond_broadcast(&gate_changes);
    pthread_mutex_unlock(&gate);
}

/* Until the process exits at the latest: HDF5 waits then. */
static inline void hold(void) {
    static bool is_registered;
    if (!is_registered) CHECK(atexit(release_held) == 0);
    is_registered = true;
    pthread_mutex_lock(&gate);
    is_held = true;
    holder = pthread_self();
    pthread_mutex_unlock(&gate);
}

/* Returns when an access waits: the operation that makes it is then pending. */
static inline void wait_for_held_call(void) {
    pthread_mutex_lock(&gate);
    while (held_calls == 0) pthread_cond_wait(&gate_changes, &gate);
    pthread_mutex_unlock(&gate);
}

static inline void pass_gate(void) {
    pthread_mutex_lock(&gate);
    held_calls++;
    pthread_cond_broadcast(&gate_changes);
    while (is_held && !pthread_equal(holder, pthread_self()))
        pthread_cond_wait(&gate_changes, &gate);
    held_calls--;
    pthread_mutex_unlock(&gate);
}

/* How much may be moved; 0 if the call fails, with errno set. */
static inline size_t allowed(size_t bytes, off_t offset) {
    unsigned long number = ++calls;
    const bool is_at = offset <= fault_at && fault_at < offset + (off_t)bytes;
    if (fault_errno != 0 && (is_at || fault_at == EVERYWHERE)) {
        errno = fault_errno;
        return 0;
    }
    if (most_bytes == 0) return bytes;
    if (number % 2) {
        errno = EINTR;
        return 0;
    }
    return bytes < most_bytes ? bytes : most_bytes;
}

/* Is called when bytes have been read, if it is set. */
static void (*has_read)(size_t bytes);

static inline ssize_t move_bytes(long call, int descriptor, void *memory, size_t bytes,
                                 off_t offset) {
    pass_gate();
    size_t some = bytes == 0 ? 0 : allowed(bytes, offset);
    if (some == 0 && bytes > 0) return -1;
    ssize_t moved = syscall(call, descriptor, memory, some, offset);
    if (call == SYS_pread64 && has_read != NULL) has_read(some);
    return moved;
}

/* The first vector alone, if calls may do less. */
static inline ssize_t move_vectors(long call, long whole, int descriptor,
                                   const struct iovec *vectors, int count, off_t offset) {
    while (count > 1 && vectors->iov_len == 0) vectors++, count--;
    if (count == 0) return 0;
    if (count > 1 && fault_errno == 0 && most_bytes == 0) {
        pass_gate();
        return syscall(whole, descriptor, vectors, count, offset, 0);
    }
    return move_bytes(call, descriptor, vectors->iov_base, vectors->iov_len, offset);
}

ssize_t pread(int descriptor, void *memory, size_t bytes, off_t offset) {
    return move_bytes(SYS_pread64, descriptor, memory, bytes, offset);
}

ssize_t pread64(int descriptor, void *memory, size_t bytes, off64_t offset) {
    return move_bytes(SYS_pread64, descriptor, memory, bytes, offset);
}

ssize_t pwrite(int descriptor, const void *memory, size_t bytes, off_t offset) {
    return move_bytes(SYS_pwrite64, descriptor, (void *)memory, bytes, offset);
}

ssize_t pwrite64(int descriptor, const void *memory, size_t bytes, off64_t offset) {
    return move_bytes(SYS_pwrite64, descriptor, (void *)memory, bytes, offset);
}

ssize_t preadv(int descriptor, const struct iovec *vectors, int count, off_t offset) {
    return move_vectors(SYS_pread64, SYS_preadv, descriptor, vectors, count, offset);
}

ssize_t preadv64(int descriptor, const struct iovec *vectors, int count, off64_t offset) {
    return move_vectors(SYS_pread64, SYS_preadv, descriptor, vectors, count, offset);
}

ssize_t pwritev(int descriptor, const struct iovec *vectors, int count, off_t offset) {
    return move_vectors(SYS_pwrite64, SYS_pwritev, descriptor, vectors, count, offset);
}

ssize_t pwritev64(int descriptor, const struct iovec *vectors, int count, off64_t offset) {
    return move_vectors(SYS_pwrite64, SYS_pwritev, descriptor, vectors, count, offset);
}

#endif
