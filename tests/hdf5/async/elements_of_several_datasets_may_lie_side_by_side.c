#include "events.h"

enum { COMPONENTS = 3, COUNT = 1000 };

/* The components of vectors, by one call that only HDF5 can carry out. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), compact = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_layout(compact, H5D_COMPACT));
    const hsize_t all = COMPONENTS * COUNT, count = COUNT, stride = COMPONENTS;
    int *expected = allocate(all * sizeof(int));
    void *memory = new_memory_with(expected, all * sizeof(int));
    hid_t datasets[COMPONENTS], types[COMPONENTS], spaces[COMPONENTS], whole[COMPONENTS];
    void *to[COMPONENTS];
    for (int i = 0; i < COMPONENTS; i++) {
        char name[] = {'x' + i, 0};
        int *these = values(COUNT, i);
        const hsize_t start = i;
        datasets[i] = create_dataset(file, name, COUNT, compact);
        OK(write_whole(datasets[i], these));
        for (int at = 0; at < COUNT; at++) expected[COMPONENTS * at + i] = these[at];
        types[i] = H5T_NATIVE_INT;
        spaces[i] = H5Screate_simple(1, &all, NULL);
        OK(H5Sselect_hyperslab(spaces[i], H5S_SELECT_SET, &start, &stride, &count, NULL));
        whole[i] = H5S_ALL;
        to[i] = memory;
        free(these);
    }
    OK(H5Dread_multi(COMPONENTS, datasets, types, spaces, whole, H5P_DEFAULT, to));
    CHECK(memory_holds(memory, expected, all * sizeof(int)));
    for (int i = 0; i < COMPONENTS; i++) {
        OK(H5Dclose(datasets[i]));
        OK(H5Sclose(spaces[i]));
    }
    OK(H5Pclose(compact));
    OK(H5Fclose(file));
    free_memory(memory);
    free(expected);
    return 0;
}
