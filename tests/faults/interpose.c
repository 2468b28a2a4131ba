/* Intercepts the C library's file calls (LD_PRELOAD) and makes one call on a file of a given
 * folder fail, stop short, or kill the process before or after it. Calls on other files pass. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum action { NONE, FAIL, SHORT, KILL_BEFORE, KILL_AFTER };
enum { CALLS = 4096, NAME = 12 };

/* Shared with the process that forks the one under test, which reads it when that one is dead. */
static struct state {
    char folder[512];
    char name[NAME];
    long occurrence;
    int action;
    int code;
    int no_unnamed_files;
    atomic_int armed;
    atomic_long seen;  /* calls of `name` */
    atomic_long calls; /* all calls in the folder, of which `log` has the first */
    atomic_long hit;   /* the number of the call that met the fault, from 1 */
    char log[CALLS][NAME];
} *state;

void *faults_state(void)
{
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return state == MAP_FAILED ? NULL : state;
}

void faults_set(const char *folder, const char *name, long occurrence, int action, int code,
                int no_unnamed_files)
{
    memset(state, 0, sizeof *state);
    snprintf(state->folder, sizeof state->folder, "%s/", folder);
    snprintf(state->name, sizeof state->name, "%s", name);
    state->occurrence = occurrence;
    state->action = action;
    state->code = code;
    state->no_unnamed_files = no_unnamed_files;
}

void faults_arm(int on) { state->armed = on; }
long faults_calls(void) { return state->calls < CALLS ? state->calls : CALLS; }
long faults_hit(void) { return state->hit; }
const char *faults_call(long number) { return state->log[number]; }

static int is_inside(const char *path)
{
    size_t length = strlen(state->folder) - 1;
    return strncmp(path, state->folder, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int is_file_inside(int fd);

static int is_path_inside(const char *path)
{
    char target[4096];
    if (strncmp(path, "/proc/self/fd/", 14) != 0)
        return is_inside(path);
    long length = syscall(SYS_readlinkat, AT_FDCWD, path, target, sizeof target - 1);
    target[length < 0 ? 0 : length] = 0;
    return is_inside(target);
}

static int is_file_inside(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return is_path_inside(path);
}

static int is_at_inside(int folder, const char *path)
{
    return path[0] == '/' || folder == AT_FDCWD ? is_path_inside(path) : is_file_inside(folder);
}

static void kill_self(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* What to do to a call that is about to be made. */
static int meets(const char *name)
{
    long number = atomic_fetch_add(&state->calls, 1);
    if (number < CALLS)
        strncpy(state->log[number], name, NAME - 1);
    if (strcmp(name, state->name) != 0 ||
        atomic_fetch_add(&state->seen, 1) + 1 != state->occurrence)
        return NONE;
    state->hit = number + 1;
    if (state->action == KILL_BEFORE)
        kill_self();
    return state->action;
}

#define ARMED (state && state->armed)
#define REAL(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

/* A call of `name`, which fails with `failure` and errno. */
#define WRAP(inside, name, type, failure, call)                                                    \
    do {                                                                                           \
        if (!ARMED || !(inside))                                                                   \
            return call;                                                                           \
        int action = meets(name);                                                                  \
        if (action == FAIL) {                                                                      \
            errno = state->code;                                                                   \
            return failure;                                                                        \
        }                                                                                          \
        type result = call;                                                                        \
        if (action == KILL_AFTER)                                                                  \
            kill_self();                                                                           \
        return result;                                                                             \
    } while (0)

#define OPEN(function)                                                                             \
    int function(const char *path, int flags, ...)                                                 \
    {                                                                                              \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = va_arg(more, mode_t);                                                        \
        va_end(more);                                                                              \
        int unnamed = (flags & O_TMPFILE) == O_TMPFILE;                                            \
        if (ARMED && unnamed && state->no_unnamed_files && is_path_inside(path)) {                 \
            errno = EOPNOTSUPP;                                                                    \
            return -1;                                                                             \
        }                                                                                          \
        const char *name = unnamed ? "tmpfile" : flags & O_DIRECTORY ? "openfolder" : "open";      \
        WRAP(is_path_inside(path), name, int, -1, REAL(function)(path, flags, mode));              \
    }
OPEN(open)
OPEN(open64)

#define OPEN_AT(function)                                                                          \
    int function(int folder, const char *path, int flags, ...)                                     \
    {                                                                                              \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = va_arg(more, mode_t);                                                        \
        va_end(more);                                                                              \
        int unnamed = (flags & O_TMPFILE) == O_TMPFILE;                                            \
        int inside = ARMED && is_at_inside(folder, path);                                          \
        if (inside && unnamed && state->no_unnamed_files) {                                        \
            errno = EOPNOTSUPP;                                                                    \
            return -1;                                                                             \
        }                                                                                          \
        const char *name = unnamed               ? "tmpfile"                                       \
                           : flags & O_PATH      ? "openpath"                                      \
                           : flags & O_DIRECTORY ? "openfolder"                                    \
                                                 : "open";                                         \
        WRAP(inside, name, int, -1, REAL(function)(folder, path, flags, mode));                    \
    }
OPEN_AT(openat)
OPEN_AT(openat64)

#define MOVE(function, name, pointer)                                                              \
    ssize_t function(int fd, pointer buffer, size_t length, off_t offset)                          \
    {                                                                                              \
        if (!ARMED || !is_file_inside(fd))                                                         \
            return REAL(function)(fd, buffer, length, offset);                                     \
        int action = meets(name);                                                                  \
        if (action == FAIL) {                                                                      \
            errno = state->code;                                                                   \
            return -1;                                                                             \
        }                                                                                          \
        /* By whole pages, as direct I/O does. */                                                  \
        if (action == SHORT && length > 1)                                                         \
            length = length > 8192 ? length / 2 & ~(size_t)4095 : (length + 1) / 2;                \
        ssize_t moved = REAL(function)(fd, buffer, length, offset);                                \
        if (action == KILL_AFTER)                                                                  \
            kill_self();                                                                           \
        return moved;                                                                              \
    }
MOVE(pread, "pread", void *)
MOVE(pread64, "pread", void *)
MOVE(pwrite, "pwrite", const void *)
MOVE(pwrite64, "pwrite", const void *)

#define OF_FILE(function, name, parameters, arguments)                                             \
    int function parameters { WRAP(is_file_inside(fd), name, int, -1, REAL(function) arguments); }
OF_FILE(fallocate, "fallocate", (int fd, int mode, off_t at, off_t length), (fd, mode, at, length))
OF_FILE(fallocate64, "fallocate", (int fd, int mode, off64_t at, off64_t length),
        (fd, mode, at, length))
OF_FILE(ftruncate, "ftruncate", (int fd, off_t length), (fd, length))
OF_FILE(ftruncate64, "ftruncate", (int fd, off64_t length), (fd, length))
OF_FILE(fsync, "fsync", (int fd), (fd))
OF_FILE(fdatasync, "fdatasync", (int fd), (fd))
OF_FILE(syncfs, "syncfs", (int fd), (fd))
OF_FILE(fchmod, "fchmod", (int fd, mode_t mode), (fd, mode))
OF_FILE(fchown, "fchown", (int fd, uid_t owner, gid_t group), (fd, owner, group))
OF_FILE(fsetxattr, "fsetxattr",
        (int fd, const char *name, const void *value, size_t size, int flags),
        (fd, name, value, size, flags))
OF_FILE(fremovexattr, "fremovexat", (int fd, const char *name), (fd, name))
OF_FILE(flock, "flock", (int fd, int operation), (fd, operation))
OF_FILE(fstat, "fstat", (int fd, struct stat *stat), (fd, stat))
OF_FILE(fstat64, "fstat", (int fd, struct stat64 *stat), (fd, stat))
OF_FILE(fstatvfs, "fstatvfs", (int fd, struct statvfs *stat), (fd, stat))
OF_FILE(fstatvfs64, "fstatvfs", (int fd, struct statvfs64 *stat), (fd, stat))

#define OF_PATH(function, name, parameters, arguments)                                             \
    int function parameters { WRAP(is_path_inside(path), name, int, -1, REAL(function) arguments); }
OF_PATH(stat, "stat", (const char *path, struct stat *stat_), (path, stat_))
OF_PATH(stat64, "stat", (const char *path, struct stat64 *stat_), (path, stat_))
OF_PATH(lstat, "stat", (const char *path, struct stat *stat_), (path, stat_))
OF_PATH(lstat64, "stat", (const char *path, struct stat64 *stat_), (path, stat_))
OF_PATH(chmod, "chmod", (const char *path, mode_t mode), (path, mode))
OF_PATH(unlink, "unlink", (const char *path), (path))
OF_PATH(rename, "rename", (const char *path, const char *to), (path, to))

#define AT(function, name, parameters, arguments)                                                  \
    int function parameters                                                                        \
    {                                                                                              \
        WRAP(is_at_inside(folder, path), name, int, -1, REAL(function) arguments);                 \
    }
AT(unlinkat, "unlink", (int folder, const char *path, int flags), (folder, path, flags))
AT(faccessat, "faccessat", (int folder, const char *path, int mode, int flags),
   (folder, path, mode, flags))
AT(renameat, "rename", (int folder, const char *path, int in, const char *to),
   (folder, path, in, to))
AT(renameat2, "rename", (int folder, const char *path, int in, const char *to, unsigned flags),
   (folder, path, in, to, flags))
AT(linkat, "linkat", (int folder, const char *path, int in, const char *to, int flags),
   (folder, path, in, to, flags))

int statx(int fd, const char *path, int flags, unsigned mask, struct statx *stat)
{
    int inside = ARMED && (path[0] == 0 ? is_file_inside(fd) : is_path_inside(path));
    WRAP(inside, "stat", int, -1, REAL(statx)(fd, path, flags, mask, stat));
}

ssize_t readlink(const char *path, char *target, size_t length)
{
    WRAP(is_path_inside(path), "readlink", ssize_t, -1, REAL(readlink)(path, target, length));
}

DIR *opendir(const char *path)
{
    WRAP(is_path_inside(path), "opendir", DIR *, NULL, REAL(opendir)(path));
}
