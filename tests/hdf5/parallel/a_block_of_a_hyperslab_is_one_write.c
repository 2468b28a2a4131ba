#include "ranks.h"

/* Blocks of 100 elements, whose starts are 300 elements apart. */
enum { BLOCKS = 2000, BLOCK = 100, STRIDE = 300 };

/* Number of writes of this process. */
static long writes(void) {
    char line[80];
    long found = -1;
    FILE *file = fopen("/proc/self/io", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "syscw: %ld", &found) == 1) break;
    CHECK(fclose(file) == 0 && found >= 0);
    return found;
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), list = transfer_list(false);
    hid_t dataset = create_parts_of(file, "d", H5T_NATIVE_INT, BLOCKS * STRIDE, H5P_DEFAULT);
    const hsize_t start = (hsize_t)rank * BLOCKS * STRIDE, stride = STRIDE, blocks = BLOCKS;
    const hsize_t block = BLOCK, own = BLOCKS * BLOCK;
    hid_t space = H5Dget_space(dataset), flat = H5Screate_simple(1, &own, NULL);
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, &stride, &blocks, &block));
    int *these = values(own, seed_of(rank, 1)), *found = allocate(own * sizeof *found);
    long before = writes();
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, flat, space, list, these));
    long made = writes() - before;
    if (made > BLOCKS + BLOCKS / 10) {
        printf("%ld writes of %d blocks\n", made, BLOCKS);
        return 1;
    }
    OK(H5Dread(dataset, H5T_NATIVE_INT, flat, space, list, found));
    CHECK(memcmp(found, these, own * sizeof *found) == 0);
    free(these);
    free(found);
    OK(H5Sclose(flat));
    OK(H5Sclose(space));
    OK(H5Dclose(dataset));
    OK(H5Pclose(list));
    OK(H5Fclose(file));
    return end_ranks();
}
