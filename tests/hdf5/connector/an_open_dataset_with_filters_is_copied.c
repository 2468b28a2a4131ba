/* HDF5 (1.14.4, 2.2.0) copies chunks of its cache into a buffer that may have become shorter than a chunk
 * when it encoded the chunk before. The elements of the copy are those that were written last. */
#include "objects.h"

enum { COUNT = 1 << 16, CHUNK = 1 << 13 };

static hid_t filtered(void) {
    const hsize_t chunk = CHUNK;
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    OK(list);
    OK(H5Pset_chunk(list, 1, &chunk));
    OK(H5Pset_scaleoffset(list, H5Z_SO_INT, H5Z_SO_INT_MINBITS_DEFAULT));
    return list;
}

static void put(hid_t dataset, int *these, hsize_t start, hsize_t count, int value) {
    const hsize_t all = COUNT;
    hid_t space = H5Screate_simple(1, &all, NULL), memory = H5Screate_simple(1, &count, NULL);
    OK(space);
    OK(memory);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL));
    for (hsize_t i = 0; i < count; i++) these[start + i] = value;
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, these + start));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
}

static void check_copy(hid_t file, const char *name, const int *these) {
    int *found = allocate(COUNT * sizeof *found);
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    OK(dataset);
    OK(read_whole(dataset, found));
    CHECK(memcmp(found, these, COUNT * sizeof *found) == 0);
    OK(H5Dclose(dataset));
    free(found);
}

int main(void) {
    begin();
    hid_t file = H5Fcreate("a.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    hid_t other = H5Fcreate("b.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(other);
    hid_t group = H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), list = filtered();
    OK(group);
    hid_t datasets[] = {create_dataset(group, "filtered", COUNT, list),
                        create_dataset(group, "contiguous", COUNT, H5P_DEFAULT),
                        create_dataset(group, "small", 100, H5P_DEFAULT)};
    int *filters = allocate(COUNT * sizeof *filters), *plain = values(COUNT, 1);
    memset(filters, 0, COUNT * sizeof *filters);
    OK(write_whole(datasets[0], filters));
    OK(write_whole(datasets[1], plain));
    OK(write_whole(datasets[2], plain));
    OK(H5Fflush(file, H5F_SCOPE_LOCAL));
    for (int step = 0; step < 3; step++) {
        for (hsize_t at = 10; at < COUNT; at += CHUNK) put(datasets[0], filters, at, 20, step);
        put(datasets[1], plain, 7 + step * 20000, 5, step);
        char name[16];
        snprintf(name, sizeof name, "copy%d", step);
        OK(H5Ocopy(group, "filtered", file, name, H5P_DEFAULT, H5P_DEFAULT));
        check_copy(file, name, filters);
        OK(H5Ocopy(file, "g", other, name, H5P_DEFAULT, H5P_DEFAULT));
        hid_t copy = H5Gopen2(other, name, H5P_DEFAULT);
        OK(copy);
        check_copy(copy, "filtered", filters);
        check_copy(copy, "contiguous", plain);
        OK(H5Gclose(copy));
    }
    for (int i = 0; i < 3; i++) OK(H5Dclose(datasets[i]));
    OK(H5Gclose(group));
    OK(H5Pclose(list));
    OK(H5Fclose(other));
    OK(H5Fclose(file));
    free(filters);
    free(plain);
    return 0;
}
