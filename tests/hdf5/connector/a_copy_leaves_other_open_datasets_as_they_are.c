/* The changed chunks of an open dataset outside of a group are not written by a copy of the group, however
 * many such datasets are open. */
#include "objects.h"

enum { COUNT = 1 << 12 };

/* Whether the file has a part of the elements. */
static int is_in_file(const char *path, const void *elements, size_t length) {
    FILE *file = fopen(path, "rb");
    CHECK(file);
    CHECK(fseek(file, 0, SEEK_END) == 0);
    size_t size = (size_t)ftell(file);
    char *bytes = allocate(size);
    rewind(file);
    CHECK(fread(bytes, 1, size, file) == size);
    fclose(file);
    int found = 0;
    for (size_t at = 0; at + length <= size && !found; at++) found = memcmp(bytes + at, elements, length) == 0;
    free(bytes);
    return found;
}

int main(void) {
    begin();
    const hsize_t chunk = COUNT;
    hid_t file = H5Fcreate("a.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    hid_t group = H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(group);
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    OK(list);
    OK(H5Pset_chunk(list, 1, &chunk));
    OK(H5Pset_fletcher32(list));
    hid_t inside = create_dataset(group, "x", COUNT, list), outside = create_dataset(file, "y", COUNT, list);
    int *these = values(COUNT, 1), *others = values(COUNT, 2);
    OK(write_whole(inside, these));
    OK(write_whole(outside, others));
    OK(H5Fflush(file, H5F_SCOPE_LOCAL));
    /* A part of a chunk stays in HDF5's cache. */
    const hsize_t all = COUNT, start = 0, count = COUNT - 1;
    hid_t space = H5Screate_simple(1, &all, NULL), memory = H5Screate_simple(1, &count, NULL);
    OK(space);
    OK(memory);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL));
    for (int i = 0; i < COUNT; i++) others[i] = 0x5a5a5a5a;
    OK(H5Dwrite(outside, H5T_NATIVE_INT, memory, space, H5P_DEFAULT, others));
    CHECK(!is_in_file("a.h5", others, 256));
    OK(H5Ocopy(file, "g", file, "copy", H5P_DEFAULT, H5P_DEFAULT));
    CHECK(!is_in_file("a.h5", others, 256));
    OK(H5Sclose(memory));
    OK(H5Sclose(space));
    OK(H5Dclose(inside));
    OK(H5Dclose(outside));
    OK(H5Pclose(list));
    OK(H5Gclose(group));
    OK(H5Fclose(file));
    CHECK(is_in_file("a.h5", others, 256));
    free(these);
    free(others);
    return 0;
}
