#include "../memory.h"

enum { SETS = 6, COUNT = 50021 };

/* By one call for each dataset, and by one call for all of them. */
int main(void) {
    begin();
    need_device();
    hid_t file = create_file("file.h5"), datasets[SETS], types[SETS], spaces[SETS];
    const void *from[SETS];
    void *to[SETS];
    for (int i = 0; i < SETS; i++) {
        char name[2] = {(char)('a' + i), 0};
        datasets[i] = create_dataset(file, name, COUNT, H5P_DEFAULT);
        types[i] = H5T_NATIVE_INT;
        spaces[i] = H5S_ALL;
        int *these = values(COUNT, i);
        size_t bytes = COUNT * sizeof(int);
        void *memory = i % 2 ? device_memory(bytes) : allocate(bytes);
        copy_memory(memory, these, bytes);
        from[i] = memory;
        to[i] = i % 3 ? device_memory(bytes) : allocate(bytes);
        if (i < SETS / 2) OK(write_whole(datasets[i], memory));
        free(these);
    }
    OK(H5Dwrite_multi(SETS, datasets, types, spaces, spaces, H5P_DEFAULT, from));
    OK(H5Dread_multi(SETS, datasets, types, spaces, spaces, H5P_DEFAULT, to));
    for (int i = 0; i < SETS; i++) CHECK(memory_has_values(to[i], COUNT, i));
    for (int i = 0; i < SETS; i++) {
        OK(read_whole(datasets[i], to[(i + 1) % SETS]));
        CHECK(memory_has_values(to[(i + 1) % SETS], COUNT, i));
        OK(H5Dclose(datasets[i]));
    }
    OK(H5Fclose(file));
    for (int i = 0; i < SETS; i++) {
        char name[2] = {(char)('a' + i), 0};
        CHECK(sec2_finds_values("file.h5", name, COUNT, i));
    }
    return 0;
}
