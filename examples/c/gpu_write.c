/* Writes a dataset from GPU memory by H5Dwrite, reads it back into GPU memory by H5Dread, and compares
 * every element. The program does not refer to Penstock: it compiles with any HDF5 from 1.14 on, and
 * works with Penstock's driver.
 *
 *     cc gpu_write.c $(pkg-config --cflags --libs hdf5) -ldl -o gpu_write    # or nvcc -x cu
 *     penstock run --report ./gpu_write NEW_FILE [MEBIBYTES]
 *
 * Compiled by nvcc, it calls the CUDA runtime. Compiled by any C compiler, it opens the CUDA driver
 * itself, so that no toolkit is needed. Without a GPU, it does the same with host memory.
 */
#include <hdf5.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what) {
    fprintf(stderr, "gpu_write: %s failed\n", what);
    exit(1);
}

#ifdef __CUDACC__

#include <cuda_runtime_api.h>

static int has_gpu(void) {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

static void *gpu_alloc(size_t size) {
    void *memory = NULL;
    return cudaMalloc(&memory, size) == cudaSuccess ? memory : NULL;
}

static int to_gpu(void *to, const void *from, size_t size) {
    return cudaMemcpy(to, from, size, cudaMemcpyHostToDevice) == cudaSuccess;
}

static int from_gpu(void *to, const void *from, size_t size) {
    return cudaMemcpy(to, from, size, cudaMemcpyDeviceToHost) == cudaSuccess;
}

#else

#include <dlfcn.h>

typedef unsigned long long address; /* CUdeviceptr */

/* A function of libcuda.so.1. All functions used here return 0 for success. */
#define CUDA(name, ...) ((int (*)(__VA_ARGS__))cuda_function(name))

static uintptr_t cuda_function(const char *name) {
    static void *library;
    if (library == NULL) library = dlopen("libcuda.so.1", RTLD_NOW);
    return library == NULL ? 0 : (uintptr_t)dlsym(library, name);
}

static int has_gpu(void) {
    int device = 0;
    void *context = NULL;
    if (cuda_function("cuInit") == 0 || CUDA("cuInit", unsigned)(0) != 0) return 0;
    if (CUDA("cuDeviceGet", int *, int)(&device, 0) != 0) return 0;
    return CUDA("cuDevicePrimaryCtxRetain", void **, int)(&context, device) == 0 &&
           CUDA("cuCtxSetCurrent", void *)(context) == 0;
}

static void *gpu_alloc(size_t size) {
    address memory = 0;
    int status = CUDA("cuMemAlloc_v2", address *, size_t)(&memory, size);
    return status == 0 ? (void *)(uintptr_t)memory : NULL;
}

static int to_gpu(void *to, const void *from, size_t size) {
    return CUDA("cuMemcpyHtoD_v2", address, const void *, size_t)((uintptr_t)to, from, size) == 0;
}

static int from_gpu(void *to, const void *from, size_t size) {
    return CUDA("cuMemcpyDtoH_v2", void *, address, size_t)(to, (uintptr_t)from, size) == 0;
}

#endif

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: gpu_write NEW_FILE [MEBIBYTES]\n");
        return 2;
    }
    hsize_t count = (hsize_t)(argc == 3 ? atoi(argv[2]) : 64) * 1048576 / sizeof(float);
    size_t size = (size_t)count * sizeof(float);
    int gpu = has_gpu();

    float *made = (float *)malloc(size), *found = (float *)calloc(1, size);
    void *field = gpu ? gpu_alloc(size) : malloc(size);
    void *copy = gpu ? gpu_alloc(size) : calloc(1, size);
    if (made == NULL || found == NULL || field == NULL || copy == NULL) die("allocation of memory");
    for (hsize_t i = 0; i < count; i++) made[i] = (float)(i % 16777213);
    if (!gpu) memcpy(field, made, size);
    if (gpu && !(to_gpu(field, made, size) && to_gpu(copy, found, size))) die("copy to the GPU");

    hid_t file = H5Fcreate(argv[1], H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT);
    if (file < 0) die("creation of a new file");
    hid_t space = H5Screate_simple(1, &count, NULL);
    hid_t dataset = H5Dcreate2(file, "field", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT,
                               H5P_DEFAULT);
    if (H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, field) < 0)
        die("H5Dwrite");
    if (H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, copy) < 0) die("H5Dread");
    if (H5Dclose(dataset) < 0 || H5Sclose(space) < 0 || H5Fclose(file) < 0) die("H5Fclose");

    if (!gpu) memcpy(found, copy, size);
    if (gpu && !from_gpu(found, copy, size)) die("copy from the GPU");
    if (memcmp(made, found, size) != 0) die("comparison of what was written and what was read");
    printf("%zu bytes of %s memory written and read, equal\n", size, gpu ? "GPU" : "host");
    return 0;
}
