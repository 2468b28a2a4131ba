#include "ranks.h"

/* Pieces of 512 bytes at odd offsets, in turn one of each rank: they share chunks, pages and sectors.
 * Between them is a byte that no rank writes. */
enum { PIECE = 512, PIECES = 1500, SKIPPED = 13, PITCH = PIECE + 1 };

static unsigned char byte_at(size_t index, int of) {
    return (unsigned char)value_at(index, of + 7);
}

static void check(hid_t file, const char *name, hid_t dcpl, bool is_collective) {
    const hsize_t all = SKIPPED + (hsize_t)PITCH * PIECES * (hsize_t)ranks + 5;
    hid_t space = H5Screate_simple(1, &all, NULL), list = transfer_list(is_collective);
    hid_t dataset =
        H5Dcreate2(file, name, H5T_NATIVE_UCHAR, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    unsigned char *background = allocate(all);
    if (rank == 0) {
        hid_t alone = transfer_list(false);
        OK(H5Dwrite(dataset, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, alone, background));
        OK(H5Pclose(alone));
    }
    barrier();

    const hsize_t own = PIECE * PIECES, start = SKIPPED + (hsize_t)PITCH * (hsize_t)rank;
    const hsize_t stride = PITCH * (hsize_t)ranks, pieces = PIECES, block = PIECE;
    unsigned char *these = allocate(own);
    for (size_t i = 0; i < own; i++) these[i] = byte_at(i, rank);
    void *memory = new_memory_with(these, own);
    hid_t flat = H5Screate_simple(1, &own, NULL), events = new_events();
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, &stride, &pieces, &block));
    OK(H5Dwrite_async(dataset, H5T_NATIVE_UCHAR, flat, space, list, memory, events));
    close_events(events);
    OK(H5Dclose(dataset));
    barrier();

    dataset = H5Dopen2(file, name, H5P_DEFAULT);
    OK(dataset);
    unsigned char *found = allocate(all);
    OK(H5Dread(dataset, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, found));
    for (int of = 0; of < ranks; of++)
        for (size_t i = 0; i < own; i++)
            background[SKIPPED + (size_t)of * PITCH + i / PIECE * stride + i % PIECE] = byte_at(i, of);
    CHECK(memcmp(found, background, all) == 0);
    OK(H5Dclose(dataset));
    OK(H5Sclose(flat));
    OK(H5Sclose(space));
    OK(H5Pclose(list));
    free_memory(memory);
    free(these);
    free(found);
    free(background);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), chunks = chunked(100003);
    check(file, "contiguous", H5P_DEFAULT, false);
    check(file, "contiguous, collectively", H5P_DEFAULT, true);
    check(file, "chunked", chunks, false);
    check(file, "chunked, collectively", chunks, true);
    OK(H5Pclose(chunks));
    OK(H5Fclose(file));
    return end_ranks();
}
