#include "ranks.h"

/* Options and a variable in which the last rank differs are an error of all ranks that names them. The others may
 * differ. Nothing is left behind: the file can be created afterwards. */
static const char *said;

static hid_t create_with(const char *options, const char *of_last) {
    hid_t list = shared_access_with(MPI_COMM_WORLD, rank == ranks - 1 ? of_last : options);
    hid_t file = H5Fcreate("x.h5", H5F_ACC_TRUNC, H5P_DEFAULT, list);
    said = file < 0 ? error_text() : "";
    OK(H5Pclose(list));
    return file;
}

static void check_refused(const char *options, const char *of_last, const char *named, const char *other) {
    CHECK(create_with(options, of_last) < 0);
    if (strstr(said, rank == ranks - 1 ? named : other) == NULL) fail(__FILE__, __LINE__, named);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    if (!is_alone()) {
        check_refused("small=0", "small=4096", "option small differs between the processes: it is 4096 in this one",
                      "it is 0 in this one");
        check_refused("", "collective=hdf5", "option collective differs", "it is auto in this one");
        check_refused("implicit=0", "implicit=1", "option implicit differs", "option implicit differs");
        check_refused("", "durable=yes", "option durable is not available", "another process");
        if (rank == ranks - 1) CHECK(setenv("HDF5_DO_MPI_FILE_SYNC", "TRUE", 1) == 0);
        check_refused("", "", "HDF5_DO_MPI_FILE_SYNC differs", "HDF5_DO_MPI_FILE_SYNC differs");
        CHECK(unsetenv("HDF5_DO_MPI_FILE_SYNC") == 0);
        hid_t file = create_with("threads=1;block=64KiB;copy=never", "threads=2;max_mem_mb=64");
        OK(file);
        hid_t dataset = create_parts(file, "x", H5P_DEFAULT), list = transfer_list(true);
        int *mine = values(EACH, seed_of(rank, 1));
        write_part(dataset, mine, list, H5ES_NONE);
        OK(H5Pclose(list));
        OK(H5Dclose(dataset));
        OK(H5Fclose(file));
        free(mine);
        check_parts("x.h5", "x", 1);
    }
    return end_ranks();
}
