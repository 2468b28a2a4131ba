#include "../memory.h"

#include <mpi.h>

/* Run by several processes. The file is theirs together: collective transfers stay collective, and
 * nothing goes on that HDF5 or MPI would not know of. MPI is told that one thread calls it. Meanwhile
 * operations on a file of each process's own do go on. */
enum { MANY = 1 << 18 };

static int rank, ranks;
static hid_t events, whole, part;

static void finish_events(void) {
    size_t left;
    hbool_t failed;
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(!failed && left == 0);
}

static size_t under_way(void) {
    size_t count;
    OK(H5ESget_count(events, &count));
    return count;
}

static void check_shared(hid_t file, const char *name, hid_t dcpl, bool is_collective) {
    hid_t list = H5Pcreate(H5P_DATASET_XFER);
    OK(list);
    if (is_collective) OK(H5Pset_dxpl_mpio(list, H5FD_MPIO_COLLECTIVE));
    int *these = values(MANY, rank);
    void *memory = new_memory_with(these, MANY * sizeof *these);
    void *found = new_memory(MANY * sizeof *these);
    hid_t dataset =
        H5Dcreate2(file, name, H5T_NATIVE_INT, whole, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);

    const size_t before = under_way();
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, part, whole, list, memory, events));
    CHECK(under_way() == before);
    H5D_mpio_actual_io_mode_t mode;
    OK(H5Pget_mpio_actual_io_mode(list, &mode));
    CHECK((mode != H5D_MPIO_NO_COLLECTIVE) == is_collective);
    OK(H5Dread_async(dataset, H5T_NATIVE_INT, part, whole, list, found, events));
    CHECK(under_way() == before);
    CHECK(memory_has_values(found, MANY, rank));

    OK(H5Dclose_async(dataset, events));
    OK(H5Pclose(list));
    free_memory(found);
    free_memory(memory);
    free(these);
}

static void check_own(void) {
    char path[32];
    snprintf(path, sizeof path, "own%d.h5", rank);
    int *these = values(MANY, rank);
    void *memory = new_memory_with(these, MANY * sizeof *these);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    OK(file);
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory, events));
    CHECK(under_way() == 1);
    OK(H5Dclose_async(dataset, events));
    OK(H5Fclose_async(file, events));
    free_memory(memory);
    free(these);
}

int main(int count, char **words) {
    int support;
    CHECK(MPI_Init_thread(&count, &words, MPI_THREAD_SINGLE, &support) == MPI_SUCCESS);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    begin();
    events = H5EScreate();
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), chunked = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL));
    hsize_t each = MANY, all = each * (hsize_t)ranks, first = each * (hsize_t)rank, chunk = MANY / 16;
    OK(H5Pset_chunk(chunked, 1, &chunk));
    whole = H5Screate_simple(1, &all, NULL);
    part = H5Screate_simple(1, &each, NULL);
    OK(H5Sselect_hyperslab(whole, H5S_SELECT_SET, &first, NULL, &each, NULL));

    hid_t file = H5Fcreate("shared.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    check_own();
    check_shared(file, "contiguous, each", H5P_DEFAULT, false);
    check_shared(file, "contiguous, together", H5P_DEFAULT, true);
    check_shared(file, "chunked, each", chunked, false);
    check_shared(file, "chunked, together", chunked, true);
    OK(H5Fclose_async(file, events));
    finish_events();
    OK(H5ESclose(events));
    OK(H5Sclose(part));
    OK(H5Sclose(whole));
    OK(H5Pclose(chunked));
    OK(H5Pclose(fapl));
    OK(H5close());
    MPI_Finalize();
    return 0;
}
