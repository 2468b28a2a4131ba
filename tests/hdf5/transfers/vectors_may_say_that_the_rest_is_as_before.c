#include "../memory.h"

#include <H5FDdevelop.h>

/* By the functions of H5FD, which HDF5's own layers call: a size of 0 and the type NOLIST stand for
 * all that follow. */
enum { PIECES = 40, COUNT = 1000, BYTES = COUNT * (int)sizeof(int), STRIDE = 3 * BYTES };

static H5FD_t *open_driver(hid_t fapl, unsigned flags) {
    H5FD_t *file = H5FDopen("file", flags, fapl, HADDR_UNDEF);
    CHECK(file != NULL);
    OK(H5FDset_eoa(file, H5FD_MEM_DEFAULT, (haddr_t)PIECES * STRIDE));
    return file;
}

int main(void) {
    begin();
    hid_t ours = H5Pcreate(H5P_FILE_ACCESS), theirs = sec2();
    H5FD_mem_t types[PIECES] = {H5FD_MEM_SUPER, H5FD_MEM_DRAW, H5FD_MEM_DRAW, H5FD_MEM_NOLIST};
    size_t sizes[PIECES] = {BYTES / 2, BYTES, 0};
    haddr_t addresses[PIECES];
    void *found[PIECES];
    const void *pieces[PIECES];
    for (int i = 0; i < PIECES; i++) {
        int *these = values(COUNT, i);
        addresses[i] = (haddr_t)(PIECES - 1 - i) * STRIDE;
        /* What is not raw data is always HDF5's own, in host memory. */
        pieces[i] = i == 0 ? these : new_memory_with(these, BYTES);
        found[i] = i == 0 ? allocate(BYTES) : new_memory(BYTES);
    }
    H5FD_t *file = open_driver(ours, H5F_ACC_RDWR | H5F_ACC_CREAT);
    OK(H5FDwrite_vector(file, H5P_DEFAULT, PIECES, types, addresses, sizes, pieces));
    OK(H5FDread_vector(file, H5P_DEFAULT, PIECES, types, addresses, sizes, found));
    for (int i = 1; i < PIECES; i++) CHECK(memory_has_values(found[i], COUNT, i));
    CHECK(memcmp(found[0], pieces[0], BYTES / 2) == 0);
    OK(H5FDclose(file));

    /* Between the pieces nothing was written, and beyond the last one the file ends. */
    char *by_sec2 = allocate(STRIDE), zeros[2 * BYTES] = {0};
    file = open_driver(theirs, H5F_ACC_RDONLY);
    for (int i = 1; i < PIECES; i++) {
        int *these = values(COUNT, i);
        OK(H5FDread(file, H5FD_MEM_DRAW, H5P_DEFAULT, addresses[i], STRIDE, by_sec2));
        CHECK(memcmp(by_sec2, these, BYTES) == 0);
        CHECK(memcmp(by_sec2 + BYTES, zeros, 2 * BYTES) == 0);
        free(these);
    }
    OK(H5FDclose(file));
    return 0;
}
