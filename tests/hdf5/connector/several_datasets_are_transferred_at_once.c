#include "objects.h"

enum { DATASETS = 3, COUNT = 500 };

/* Also of a file that is open twice. */
int main(void) {
    begin();
    hid_t files[2] = {make_file("file.h5"), H5Fopen("file.h5", H5F_ACC_RDWR, H5P_DEFAULT)};
    OK(files[1]);
    hid_t datasets[DATASETS], types[DATASETS], spaces[DATASETS];
    const void *from[DATASETS];
    void *to[DATASETS];
    for (int i = 0; i < DATASETS; i++) {
        char name[] = {'a' + i, 0};
        datasets[i] = create_dataset(files[i % 2], name, COUNT, H5P_DEFAULT);
        types[i] = H5T_NATIVE_INT;
        spaces[i] = H5S_ALL;
        from[i] = values(COUNT, i);
        to[i] = allocate(COUNT * sizeof(int));
    }
    OK(H5Dwrite_multi(DATASETS, datasets, types, spaces, spaces, H5P_DEFAULT, from));
    OK(H5Dread_multi(DATASETS, datasets, types, spaces, spaces, H5P_DEFAULT, to));
    OK(H5Dread_multi(0, datasets, types, spaces, spaces, H5P_DEFAULT, to));
    for (int i = 0; i < DATASETS; i++) {
        CHECK(memcmp(from[i], to[i], COUNT * sizeof(int)) == 0);
        OK(H5Dclose(datasets[i]));
        free((void *)from[i]);
        free(to[i]);
    }
    OK(H5Fclose(files[0]));
    OK(H5Fclose(files[1]));
    return 0;
}
