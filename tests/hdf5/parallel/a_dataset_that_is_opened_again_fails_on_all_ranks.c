#include "ranks.h"

/* All ranks read a dataset of a file that is open for reading, close it and open it again. Then one rank cannot read
 * the index of the chunks: the call fails on all ranks. */
static void read_once(hid_t file, bool fails) {
    hid_t dataset = H5Dopen2(file, "filtered", H5P_DEFAULT), list = transfer_list(true);
    OK(dataset);
    selection at = select_from(dataset, (hsize_t)rank * EACH, EACH);
    int *mine = values(EACH, seed_of(rank, 1));
    if (fails && rank == 1) fail_everywhere(EIO);
    herr_t status = H5Dread(dataset, H5T_NATIVE_INT, at.memory, at.file, list, mine);
    if (rank == 1) fail_no_more();
    CHECK((status < 0) == fails);
    close_selection(at);
    OK(H5Pclose(list));
    OK(H5Dclose(dataset));
    free(mine);
}

int main(int count, char **words) {
    begin_ranks_with("collective=hdf5", count, words);
    if (!is_alone()) { /* HDF5 alone hangs */
        const hsize_t chunk = EACH / 64;
        hid_t file = create_shared("x.h5"), dcpl = H5Pcreate(H5P_DATASET_CREATE);
        OK(H5Pset_chunk(dcpl, 1, &chunk));
        OK(H5Pset_fletcher32(dcpl));
        hid_t dataset = create_parts(file, "filtered", dcpl), list = transfer_list(true);
        void *memory = new_part(1);
        write_part(dataset, memory, list, H5ES_NONE);
        free_memory(memory);
        OK(H5Pclose(list));
        OK(H5Dclose(dataset));
        OK(H5Pclose(dcpl));
        OK(H5Fclose(file));
        file = open_shared("x.h5", H5F_ACC_RDONLY);
        read_once(file, false);
        read_once(file, true);
        barrier();
        OK(H5Fclose(file));
    }
    return end_ranks();
}
