/* Memory of the host or, if PROGRAM_DEVICE is set, of the GPU. */
#ifndef MEMORY_H
#define MEMORY_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    unsigned char *bytes; /* an address of the GPU if `on_device` */
    size_t size;
    int on_device;
} memory;

static void *cuda;

static void call_cuda(const char *name, size_t a, size_t b, size_t c)
{
    union {
        void *symbol;
        int (*function)(size_t, size_t, size_t);
    } found;
    found.symbol = cuda ? dlsym(cuda, name) : NULL;
    if (!found.symbol || found.function(a, b, c) != 0) {
        fprintf(stderr, "%s failed\n", name);
        exit(99);
    }
}

static void start_device(void)
{
    if (!getenv("PROGRAM_DEVICE"))
        return;
    void *context = NULL;
    cuda = dlopen(getenv("PENSTOCK_CUDA_LIBRARY"), RTLD_NOW | RTLD_GLOBAL);
    call_cuda("cuInit", 0, 0, 0);
    call_cuda("cuDevicePrimaryCtxRetain", (size_t)&context, 0, 0);
    call_cuda("cuCtxSetCurrent", (size_t)context, 0, 0);
}

/* Takes over the host's memory that `bytes` points to. */
static memory memory_of(unsigned char *bytes, size_t size, int on_device)
{
    memory made = {bytes, size, on_device && cuda != NULL};
    if (made.on_device) {
        call_cuda("cuMemAlloc_v2", (size_t)&made.bytes, size + 1, 0);
        call_cuda("cuMemcpyHtoD_v2", (size_t)made.bytes, (size_t)bytes, size);
        free(bytes);
    }
    return made;
}

/* Returns the bytes in memory of the host, and frees the rest. */
static unsigned char *to_host(memory *from)
{
    unsigned char *bytes = from->bytes;
    if (from->on_device) {
        bytes = malloc(from->size + 1);
        call_cuda("cuMemcpyDtoH_v2", (size_t)bytes, (size_t)from->bytes, from->size);
        call_cuda("cuMemFree_v2", (size_t)from->bytes, 0, 0);
    }
    from->bytes = NULL;
    return bytes;
}
#endif
