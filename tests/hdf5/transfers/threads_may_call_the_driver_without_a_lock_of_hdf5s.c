/* As HDF5 will from 2.3 on: its own lock is not held while the driver works. */
#include "../memory.h"

#include <H5FDdevelop.h>
#include <penstock_hdf5.h>
#include <pthread.h>

/* What the plugin asks libpenstock.so for. */
extern const H5FD_class_t *penstock_driver_class(const void *code);

enum { THREADS = 8, TURNS = 40, PIECE = 100003, PLACES = 3, AREA = 4 * PIECE };

static const H5FD_class_t *driver;
static H5FD_t *file;

static void *work(void *argument) {
    int number = *(int *)argument;
    haddr_t begin = (haddr_t)number * AREA;
    if (is_on_device()) {
        void *context = NULL;
        CUDA(cuDevicePrimaryCtxRetain, ADDRESS(&context), 0, 0);
        CUDA(cuCtxSetCurrent, ADDRESS(context), 0, 0);
    }
    unsigned char *these = allocate(PIECE);
    char *found = new_memory(2 * PIECE);
    for (int turn = 0; turn < TURNS; turn++) {
        memset(these, number * TURNS + turn, PIECE);
        haddr_t at = begin + (haddr_t)(turn % PLACES) * PIECE;
        void *memory = new_memory_with(these, PIECE);
        OK(driver->write(file, H5FD_MEM_DRAW, H5P_DEFAULT, at, PIECE, memory));
        OK(driver->write(file, H5FD_MEM_OHDR, H5P_DEFAULT, begin + PLACES * PIECE, 64, these));
        H5FD_mem_t types[] = {H5FD_MEM_DRAW, H5FD_MEM_NOLIST};
        haddr_t addresses[] = {at, at};
        size_t sizes[] = {PIECE, 0};
        void *buffers[] = {found, found + PIECE};
        OK(driver->read_vector(file, H5P_DEFAULT, 2, types, addresses, sizes, buffers));
        CHECK(memory_holds(found, these, PIECE));
        H5FD_ctl_memcpy_args_t copy = {memory, 0, found, PIECE, PIECE};
        OK(driver->ctl(file, H5FD_CTL_MEM_COPY, H5FD_CTL_FAIL_IF_UNKNOWN_FLAG, &copy, NULL));
        CHECK(memory_holds(memory, these, PIECE));
        CHECK(driver->get_eof(file, H5FD_MEM_DRAW) >= at + PIECE);
        free_memory(memory);
    }
    free_memory(found);
    free(these);
    return NULL;
}

int main(void) {
    begin();
    (void)is_on_device();
    union {
        herr_t (*function)(void);
        const void *address;
    } code = {H5open};
    driver = penstock_driver_class(code.address);
    CHECK(driver != NULL);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    file = driver->open("threads", H5F_ACC_RDWR | H5F_ACC_CREAT | H5F_ACC_TRUNC, access,
                        driver->maxaddr);
    CHECK(file != NULL);
    OK(driver->set_eoa(file, H5FD_MEM_DEFAULT, (haddr_t)THREADS * AREA));
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(driver->close(file));
    OK(H5Pclose(access));
    return 0;
}
