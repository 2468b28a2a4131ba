/* Memory of the kind that PENSTOCK_TEST_MEMORY names, "host" or "device", for programs that do the
 * same with either. The CUDA driver is opened as an application without Penstock opens
 * it; on the stand-in its device memory faults when the CPU touches it. */
#ifndef MEMORY_H
#define MEMORY_H

#include "check.h"

#include <dlfcn.h>

static void *cuda;

/* No function called here has more arguments; of some the fourth is a stream. ISO C has no cast from an
 * object pointer to a function pointer. */
static inline int cuda_call_on(const char *name, unsigned long long a, unsigned long long b,
                               unsigned long long c, void *stream) {
    typedef int function(unsigned long long, unsigned long long, unsigned long long, void *);
    union {
        void *object;
        function *code;
    } symbol;
    symbol.object = dlsym(cuda, name);
    if (symbol.object == NULL) fail(__FILE__, __LINE__, name);
    return symbol.code(a, b, c, stream);
}

static inline int cuda_call(const char *name, unsigned long long a, unsigned long long b,
                            unsigned long long c) {
    return cuda_call_on(name, a, b, c, NULL);
}

#define ADDRESS(pointer) ((unsigned long long)(pointer))
#define CUDA(name, a, b, c) CHECK(cuda_call(#name, a, b, c) == 0)

static inline bool has_device(void) {
    static int has = -1;
    if (has >= 0) return has;
    const char *name = getenv("PENSTOCK_CUDA_LIBRARY");
    cuda = dlopen(name ? name : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int count = 0;
    has = cuda != NULL && cuda_call("cuInit", 0, 0, 0) == 0 &&
          cuda_call("cuDeviceGetCount", ADDRESS(&count), 0, 0) == 0 && count > 0;
    if (has) {
        void *context = NULL;
        CUDA(cuDevicePrimaryCtxRetain, ADDRESS(&context), 0, 0);
        CUDA(cuCtxSetCurrent, ADDRESS(context), 0, 0);
    }
    return has;
}

static inline void need_device(void) {
    if (!has_device()) skip("no CUDA device");
}

static inline void need_standin(void) {
    const char *name = getenv("PENSTOCK_CUDA_LIBRARY");
    if (name == NULL || strstr(name, "standin") == NULL)
        skip("only the stand-in can be made to fail");
    need_device();
}

static inline bool is_on_device(void) {
    const char *kind = getenv("PENSTOCK_TEST_MEMORY");
    if (kind == NULL || strcmp(kind, "host") == 0) return false;
    CHECK(strcmp(kind, "device") == 0);
    need_device();
    return true;
}

static inline void *device_memory(size_t bytes) {
    void *memory = NULL;
    CUDA(cuMemAlloc_v2, ADDRESS(&memory), bytes, 0);
    return memory;
}

static inline void free_device_memory(void *memory) {
    CUDA(cuMemFree_v2, ADDRESS(memory), 0, 0);
}

/* The driver derives the direction of the copy from the addresses. */
static inline void copy_memory(void *to, const void *from, size_t bytes) {
    if (cuda != NULL)
        CUDA(cuMemcpy, ADDRESS(to), ADDRESS(from), bytes);
    else
        memcpy(to, from, bytes);
}

static inline void *new_memory(size_t bytes) {
    return is_on_device() ? device_memory(bytes) : allocate(bytes);
}

static inline void *new_memory_with(const void *from, size_t bytes) {
    void *memory = new_memory(bytes);
    copy_memory(memory, from, bytes);
    return memory;
}

static inline void free_memory(void *memory) {
    if (is_on_device())
        free_device_memory(memory);
    else
        free(memory);
}

static inline bool memory_holds(const void *memory, const void *expected, size_t bytes) {
    void *found = allocate(bytes);
    copy_memory(found, memory, bytes);
    bool holds = memcmp(found, expected, bytes) == 0;
    free(found);
    return holds;
}

static inline bool memory_has_values(const void *memory, size_t count, int seed) {
    int *expected = values(count, seed);
    bool has = memory_holds(memory, expected, count * sizeof *expected);
    free(expected);
    return has;
}

#endif
