#include "../check.h"

#include <H5FDdevelop.h>

/* What the plugin asks libpenstock.so for. */
extern const H5FD_class_t *penstock_driver_class(const void *code);

enum { COUNT = 64 };

static const H5FD_class_t *driver;
static H5FD_t *file;

static herr_t read_into(hid_t in_memory, hid_t in_file) {
    static char memory[2 * COUNT];
    void *buffer = memory;
    haddr_t offset = 0;
    size_t element = 1;
    return driver->read_selection(file, H5FD_MEM_DRAW, H5P_DEFAULT, 1, &in_memory, &in_file, &offset,
                                  &element, &buffer);
}

static hid_t every_other(void) {
    hsize_t all = 2 * COUNT, start = 0, stride = 2, count = COUNT;
    hid_t space = H5Screate_simple(1, &all, NULL);
    OK(space);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, &stride, &count, NULL));
    return space;
}

/* HDF5 numbers the iterators in order, so this tells which were made meanwhile. */
static hid_t next_iterator(hid_t space) {
    hid_t iterator = H5Ssel_iter_create(space, 1, H5S_SEL_ITER_SHARE_WITH_DATASPACE);
    OK(iterator);
    OK(H5Ssel_iter_close(iterator));
    return iterator;
}

int main(void) {
    begin();
    union {
        herr_t (*function)(void);
        const void *address;
    } code = {H5open};
    driver = penstock_driver_class(code.address);
    CHECK(driver != NULL);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), space = every_other(), no_space = access;
    file = driver->open("file", H5F_ACC_RDWR | H5F_ACC_CREAT | H5F_ACC_TRUNC, access,
                        driver->maxaddr);
    CHECK(file != NULL);
    OK(driver->set_eoa(file, H5FD_MEM_DEFAULT, 2 * COUNT));
    hid_t first = next_iterator(space);
    for (int turn = 0; turn < 5; turn++) {
        OK(read_into(space, space));
        CHECK(read_into(no_space, space) < 0);
        CHECK(read_into(space, no_space) < 0);
    }
    OK(driver->close(file));
    hid_t last = next_iterator(space);
    CHECK(last > first + 1);
    for (hid_t iterator = first; iterator <= last; iterator++) CHECK(H5Iis_valid(iterator) == 0);
    OK(H5Sclose(space));
    OK(H5Pclose(access));
    return 0;
}
