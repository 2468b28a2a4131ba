/* A 3-D array divided into blocks along the last two axes: each rank's part is thousands of short rows,
 * of which some adjoin. The program defines PLANES, ROWS and WIDTH, the lengths of a block. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "ranks.h"

static inline void check_blocks(hid_t file, const char *name, hid_t dcpl, bool is_collective) {
    const hsize_t extent[] = {PLANES, 2 * ROWS, WIDTH * (hsize_t)ranks};
    const hsize_t start[] = {0, 0, WIDTH * (hsize_t)rank}, size[] = {PLANES, ROWS, WIDTH};
    const size_t each = PLANES * ROWS * WIDTH;
    hid_t space = H5Screate_simple(3, extent, NULL), flat = H5Screate_simple(3, size, NULL);
    hid_t dataset = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    hid_t list = transfer_list(is_collective), events = new_events();
    for (int half = 0; half < 2; half++) {
        const hsize_t from[] = {0, (hsize_t)half * ROWS, start[2]};
        OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, size, NULL));
        int *these = values(each, seed_of(rank, half));
        void *memory = new_memory_with(these, each * sizeof *these);
        OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, flat, space, list, memory, events));
        finish_all(events);
        free_memory(memory);
        free(these);
    }
    OK(H5ESclose(events));
    barrier();
    int *found = allocate(2 * each * (size_t)ranks * sizeof *found);
    OK(read_whole(dataset, found));
    for (size_t i = 0; i < 2 * each * (size_t)ranks; i++) {
        const size_t column = i % extent[2], row = i / extent[2] % extent[1];
        const size_t plane = i / extent[2] / extent[1];
        const size_t place = (plane * ROWS + row % ROWS) * WIDTH + column % WIDTH;
        CHECK(found[i] == value_at(place, seed_of((int)(column / WIDTH), row / ROWS > 0)));
    }
    barrier();
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
    OK(H5Sclose(flat));
    OK(H5Pclose(list));
    free(found);
}

#endif
