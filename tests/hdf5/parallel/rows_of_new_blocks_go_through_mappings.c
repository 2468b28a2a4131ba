/* Rows long enough for mappings of the file, in a dataset without fill values. */
enum { PLANES = 24, ROWS = 300, WIDTH = 200 };
#include "blocks.h" /* new_memory */

int main(int count, char **words) {
    begin_ranks_with("io=mmap", count, words);
    hid_t file = create_shared("x.h5"), unfilled = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_fill_time(unfilled, H5D_FILL_TIME_NEVER));
    check_blocks(file, "collective", unfilled, true);
    check_blocks(file, "independent", unfilled, false);
    OK(H5Pclose(unfilled));
    OK(H5Fclose(file));
    return end_ranks();
}
