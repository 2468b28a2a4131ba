/* What every program here uses: a check that names its line, known values, and the file as HDF5's
 * own driver reads it. The programs are linked with HDF5 and run with HDF5_DRIVER=penstock.
 * Exit status 0 is a pass, 1 a failure, 77 a skip (the reason is on standard output). */
#ifndef CHECK_H
#define CHECK_H

#include <hdf5.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void fail(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    H5Eprint2(H5E_DEFAULT, stderr);
    exit(1);
}

#define CHECK(condition) \
    do { \
        if (!(condition)) fail(__FILE__, __LINE__, #condition); \
    } while (0)
/* Of functions that return an identifier or a status. */
#define OK(call) CHECK((call) >= 0)

static inline void skip(const char *reason) {
    printf("%s\n", reason);
    exit(77);
}

/* Errors are for the program to look at, and what fails here is printed by `fail`. */
static inline void begin(void) {
    OK(H5open());
    OK(H5Eset_auto2(H5E_DEFAULT, NULL, NULL));
}

static inline void *allocate(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    CHECK(memory != NULL);
    memset(memory, 0xA5, bytes);
    return memory;
}

/* No two blocks look alike, and two seeds differ everywhere. */
static inline int value_at(size_t index, int seed) {
    return (int)(index * 2654435761u) ^ (seed * 1000003);
}

static inline int *values(size_t count, int seed) {
    int *made = allocate(count * sizeof *made);
    for (size_t i = 0; i < count; i++) made[i] = value_at(i, seed);
    return made;
}

/* Property lists that are the same for all of a program. */
static inline hid_t sec2(void) {
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(fapl);
    OK(H5Pset_fapl_sec2(fapl));
    return fapl;
}

static inline bool is_driven_by_penstock(hid_t file) {
    hid_t fapl = H5Fget_access_plist(file), other = sec2();
    OK(fapl);
    bool is = H5Pget_driver(fapl) != H5Pget_driver(other);
    OK(H5Pclose(other));
    OK(H5Pclose(fapl));
    return is;
}

/* By the driver that the environment names. */
static inline hid_t create_file(const char *path) {
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    CHECK(is_driven_by_penstock(file));
    return file;
}

static inline hid_t open_file(const char *path, unsigned flags) {
    hid_t file = H5Fopen(path, flags, H5P_DEFAULT);
    OK(file);
    CHECK(is_driven_by_penstock(file));
    return file;
}

static inline hid_t open_by_sec2(const char *path, unsigned flags) {
    hid_t fapl = sec2(), file = H5Fopen(path, flags, fapl);
    OK(file);
    OK(H5Pclose(fapl));
    return file;
}

/* Of integers, one-dimensional. */
static inline hid_t create_dataset(hid_t file, const char *name, hsize_t count, hid_t dcpl) {
    hid_t space = H5Screate_simple(1, &count, NULL);
    OK(space);
    hid_t dataset =
        H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    OK(H5Sclose(space));
    return dataset;
}

static inline herr_t write_whole(hid_t dataset, const void *from) {
    return H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, from);
}

static inline herr_t read_whole(hid_t dataset, void *to) {
    return H5Dread(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, to);
}

/* A dataset with the values of a seed, in a file that has it and nothing else open. */
static inline void put_values(hid_t file, const char *name, size_t count, int seed) {
    hid_t dataset = create_dataset(file, name, count, H5P_DEFAULT);
    int *these = values(count, seed);
    OK(write_whole(dataset, these));
    OK(H5Dclose(dataset));
    free(these);
}

static inline bool has_values(hid_t file, const char *name, size_t count, int seed) {
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    OK(dataset);
    int *found = allocate(count * sizeof *found);
    OK(read_whole(dataset, found));
    OK(H5Dclose(dataset));
    size_t same = 0;
    while (same < count && found[same] == value_at(same, seed)) same++;
    free(found);
    return same == count;
}

static inline bool sec2_finds_values(const char *path, const char *name, size_t count, int seed) {
    hid_t file = open_by_sec2(path, H5F_ACC_RDONLY);
    bool found = has_values(file, name, count, seed);
    OK(H5Fclose(file));
    return found;
}

static inline off_t size_of_file(const char *path) {
    struct stat status;
    CHECK(stat(path, &status) == 0);
    return status.st_size;
}

static herr_t append_description(unsigned n, const H5E_error2_t *error, void *text) {
    size_t used = strlen(text);
    (void)n;
    snprintf((char *)text + used, 8192 - used, "%s\n", error->desc ? error->desc : "");
    return 0;
}

/* HDF5's error stack of this thread as text. */
static inline const char *error_text(void) {
    static char text[8192];
    text[0] = 0;
    OK(H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, append_description, text));
    return text;
}

#define CHECK_ERROR_SAYS(words) \
    do { \
        if (strstr(error_text(), words) == NULL) \
            fail(__FILE__, __LINE__, "the error does not contain: " words); \
    } while (0)

/* Runs this program again with one argument, its role, and returns the exit status. A child of fork
 * alone would share the parent's HDF5. */
static inline pid_t start(const char *program, const char *role) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl(program, program, role, (char *)NULL);
        _exit(126);
    }
    return child;
}

static inline int finish(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline int run(const char *program, const char *role) {
    return finish(start(program, role));
}

#endif
