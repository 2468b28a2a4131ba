/* What every test program here uses: a check that names its line, and files of known bytes.
 * Exit status 0 is a pass, 1 a failure, 77 a skip (the reason is on standard output). */
#ifndef CHECK_H
#define CHECK_H

#include <penstock.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void fail(const char *file, int line, const char *what) {
    penstock_error error = {0};
    error.struct_size = sizeof error;
    penstock_last_error(&error);
    fprintf(stderr, "%s:%d: %s\nlast error: status %d, %s\n", file, line, what,
            (int)error.status, error.message ? error.message : "(none)");
    exit(1);
}

#define CHECK(condition) \
    do { \
        if (!(condition)) fail(__FILE__, __LINE__, #condition); \
    } while (0)
#define OK(call) CHECK((call) == PENSTOCK_OK)

static inline void skip(const char *reason) {
    printf("%s\n", reason);
    exit(77);
}

static inline void need_gpu(void) {
    int count = 0;
    OK(penstock_device_count(&count));
    if (count == 0) skip("no CUDA device");
}

/* The byte at `offset` of every test file: no two blocks look alike. */
static inline unsigned char byte_at(uint64_t offset) {
    return (unsigned char)(offset * 31 + (offset >> 8) * 7 + (offset >> 16) * 3);
}

static inline unsigned char *allocate(size_t length) {
    unsigned char *memory = malloc(length ? length : 1);
    CHECK(memory != NULL);
    memset(memory, 0xA5, length);
    return memory;
}

static inline void fill(unsigned char *memory, size_t length, uint64_t offset) {
    for (size_t i = 0; i < length; i++) memory[i] = byte_at(offset + i);
}

/* Whether `memory` holds what a test file holds from `offset` on. */
static inline int holds(const unsigned char *memory, size_t length, uint64_t offset) {
    for (size_t i = 0; i < length; i++)
        if (memory[i] != byte_at(offset + i)) return 0;
    return 1;
}

/* Makes a test file with the C library alone. */
static inline void make_file(const char *path, size_t length) {
    unsigned char *memory = allocate(length);
    fill(memory, length, 0);
    FILE *stream = fopen(path, "wb");
    CHECK(stream != NULL);
    CHECK(fwrite(memory, 1, length, stream) == length);
    CHECK(fclose(stream) == 0);
    free(memory);
}

/* Reads a whole file with the C library alone; *length is what the file holds. */
static inline unsigned char *file_bytes(const char *path, size_t *length) {
    FILE *stream = fopen(path, "rb");
    CHECK(stream != NULL);
    CHECK(fseek(stream, 0, SEEK_END) == 0);
    *length = (size_t)ftell(stream);
    rewind(stream);
    unsigned char *memory = allocate(*length);
    CHECK(fread(memory, 1, *length, stream) == *length);
    CHECK(fclose(stream) == 0);
    return memory;
}

/* Forks. A child that hangs, which would be a defect, is ended. */
static inline pid_t forked(void) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) alarm(20);
    return child;
}

/* Waits for a child, which must pass. */
static inline void wait_for(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline penstock_error last_error(void) {
    penstock_error error = {0};
    error.struct_size = sizeof error;
    CHECK(penstock_last_error(&error) == PENSTOCK_OK);
    return error;
}

static inline penstock_file *open_file(const char *path, int flags) {
    penstock_file *file = NULL;
    OK(penstock_open(path, flags, NULL, &file));
    CHECK(file != NULL);
    return file;
}

#endif
