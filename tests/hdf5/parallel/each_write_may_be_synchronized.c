#include "ranks.h"

/* HDF5 then refuses to write elements independently. */
int main(int count, char **words) {
    CHECK(setenv("HDF5_DO_MPI_FILE_SYNC", "1", 1) == 0);
    begin_ranks(count, words);
    hid_t file = create_shared("x.h5"), dataset = create_parts(file, "x", H5P_DEFAULT);
    hid_t list = transfer_list(true);
    int *mine = values(EACH, seed_of(rank, 1));
    const hsize_t start = (hsize_t)rank * EACH, few = 4;
    write_from(dataset, start, few, mine, list, H5ES_NONE);
    write_from(dataset, start + few, EACH - few, mine + few, list, H5ES_NONE);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    free(mine);
    check_parts("x.h5", "x", 1);
    return end_ranks();
}
