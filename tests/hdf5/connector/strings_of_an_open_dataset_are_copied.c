/* HDF5 (1.14.4, 2.2.0) copies a contiguous dataset without the strings in its sieve buffer, or fails. The copy has
 * what was written last. */
#include "objects.h"

enum { COUNT = 5000 };

int main(void) {
    begin();
    const hsize_t all = COUNT, start = 4000, count = 7;
    hid_t file = H5Fcreate("a.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &all, NULL), memory = H5Screate_simple(1, &count, NULL);
    OK(type);
    OK(space);
    OK(memory);
    OK(H5Tset_size(type, H5T_VARIABLE));
    hid_t dataset = H5Dcreate2(file, "x", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(dataset);
    const char *texts[COUNT];
    for (int i = 0; i < COUNT; i++) texts[i] = "old";
    OK(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts));
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL));
    for (hsize_t i = 0; i < count; i++) texts[start + i] = "a new one";
    OK(H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, texts + start));
    OK(H5Ocopy(file, "x", file, "y", H5P_DEFAULT, H5P_DEFAULT));
    hid_t copy = H5Dopen2(file, "y", H5P_DEFAULT);
    OK(copy);
    char **found = allocate(COUNT * sizeof *found);
    OK(H5Sselect_all(space));
    OK(H5Dread(copy, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
    for (int i = 0; i < COUNT; i++) CHECK(strcmp(found[i], texts[i]) == 0);
    OK(H5Treclaim(type, space, H5P_DEFAULT, found));
    OK(H5Dclose(copy));
    OK(H5Dclose(dataset));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
    OK(H5Tclose(type));
    OK(H5Fclose(file));
    free(found);
    return 0;
}
