#include "../memory.h"

enum { SETS = 5, COUNT = 3001 };

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk = 700;
    OK(H5Pset_chunk(dcpl, 1, &chunk));
    hid_t datasets[SETS], types[SETS], spaces[SETS];
    const void *from[SETS];
    void *to[SETS];
    for (int i = 0; i < SETS; i++) {
        char name[2] = {(char)('a' + i), 0};
        datasets[i] = create_dataset(file, name, COUNT, i % 2 ? dcpl : H5P_DEFAULT);
        types[i] = H5T_NATIVE_INT;
        spaces[i] = H5S_ALL;
        int *these = values(COUNT, i);
        from[i] = new_memory_with(these, COUNT * sizeof(int));
        to[i] = new_memory(COUNT * sizeof(int));
        free(these);
    }
    OK(H5Dwrite_multi(SETS, datasets, types, spaces, spaces, H5P_DEFAULT, from));
    OK(H5Dread_multi(SETS, datasets, types, spaces, spaces, H5P_DEFAULT, to));
    for (int i = 0; i < SETS; i++) {
        CHECK(memory_has_values(to[i], COUNT, i));
        OK(H5Dclose(datasets[i]));
        free_memory(to[i]);
        free_memory((void *)from[i]);
    }
    OK(H5Fclose(file));
    for (int i = 0; i < SETS; i++) {
        char name[2] = {(char)('a' + i), 0};
        CHECK(sec2_finds_values("file.h5", name, COUNT, i));
    }
    OK(H5Pclose(dcpl));
    return 0;
}
