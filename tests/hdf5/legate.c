/* Calls the driver that Legate brings, as Legate does: with a pointer that the loader resolved.
 * Run with libpenstock_legate.so preloaded, and without the variables that name a driver. */
#include "check.h"

#include <dlfcn.h>

typedef herr_t set_fapl_gds(hid_t fapl, size_t boundary, size_t block_size, size_t cbuf_size);

int main(void) {
    begin();
    set_fapl_gds *set = NULL;
    *(void **)&set = dlsym(RTLD_DEFAULT, "H5Pset_fapl_gds");
    CHECK(set != NULL);
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(set(fapl, 4096, 4096, 16 << 20));

    enum { COUNT = 100000 };
    int *expected = values(COUNT, 1), *found = allocate(COUNT * sizeof *found);
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    CHECK(is_driven_by_penstock(file));
    hid_t dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    OK(write_whole(dataset, expected));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));

    file = open_by_sec2("file.h5", H5F_ACC_RDONLY);
    OK(dataset = H5Dopen2(file, "x", H5P_DEFAULT));
    OK(read_whole(dataset, found));
    CHECK(memcmp(expected, found, COUNT * sizeof *found) == 0);

    /* What is not an access list is an error, not a crash. */
    CHECK(set(-1, 0, 0, 0) < 0);
    CHECK(set(dataset, 0, 0, 0) < 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    /* The copy buffer of vfd-gds may be larger than any block. */
    OK(set(fapl, 4096, 4096, (size_t)4 << 30));
    CHECK(setenv("HDF5_DRIVER_CONFIG", "colour=red", 1) == 0);
    CHECK(set(fapl, 4096, 4096, 16 << 20) < 0);
    CHECK_ERROR_SAYS("unknown option \"colour\"");
    OK(H5Pclose(fapl));
    free(expected);
    free(found);
    return 0;
}
