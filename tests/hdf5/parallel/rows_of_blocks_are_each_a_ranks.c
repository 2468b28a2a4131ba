enum { PLANES = 12, ROWS = 60, WIDTH = 50 };
#include "blocks.h" /* new_memory */

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), chunks = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk[] = {5, 33, 71};
    OK(H5Pset_chunk(chunks, 3, chunk));
    check_blocks(file, "contiguous", H5P_DEFAULT, true);
    check_blocks(file, "contiguous, independently", H5P_DEFAULT, false);
    check_blocks(file, "chunked", chunks, true);
    check_blocks(file, "chunked, independently", chunks, false);
    OK(H5Pclose(chunks));
    OK(H5Fclose(file));
    return end_ranks();
}
