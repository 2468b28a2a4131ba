/* What programs of MPI ranks use: files that all ranks share, and datasets of equal parts, one for each
 * rank. They run on the connector, or by HDF5 alone if HDF5_VOL_CONNECTOR is not set; then every
 * operation is complete when its call returns. */
#ifndef RANKS_H
#define RANKS_H

#include "../async/events.h"

#include <mpi.h>

/* Elements of a part; more than a small transfer has. */
enum { EACH = 1 << 18 };

static int rank, ranks;
static bool has_ended;

static inline bool is_alone(void) { return getenv("HDF5_VOL_CONNECTOR") == NULL; }

/* The launcher ends all ranks when one fails. HDF5 would wait for the others. */
static void end_at_once(void) {
    if (has_ended) return;
    fflush(NULL);
    _exit(1);
}

/* A program that hangs gets SIGALRM. */
static inline void begin_ranks(int count, char **words) {
    int support;
    alarm(30);
    CHECK(MPI_Init_thread(&count, &words, MPI_THREAD_SINGLE, &support) == MPI_SUCCESS);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    begin();
    CHECK(atexit(end_at_once) == 0);
    (void)is_on_device();
}

/* HDF5 alone has no options. */
static inline void begin_ranks_with(const char *options, int count, char **words) {
    if (!is_alone()) add_options(options);
    begin_ranks(count, words);
}

static inline int end_ranks(void) {
    OK(H5close());
    MPI_Finalize();
    has_ended = true;
    return 0;
}

static inline void barrier(void) { CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS); }

/* -- lists and files ------------------------------------------------------------------------- */

static inline hid_t shared_access(void) {
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_fapl_mpio(list, MPI_COMM_WORLD, MPI_INFO_NULL));
    return list;
}

/* For a group of ranks, with options of the connector for this file. */
static inline hid_t shared_access_with(MPI_Comm group, const char *options) {
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_fapl_mpio(list, group, MPI_INFO_NULL));
    if (is_alone()) return list;
    hid_t connector = H5VLregister_connector_by_name("penstock_async", H5P_DEFAULT);
    char text[200];
    void *info = NULL;
    snprintf(text, sizeof text, "under_vol=0;under_info={};%s", options);
    OK(connector);
    OK(H5VLconnector_str_to_info(text, connector, &info));
    OK(H5Pset_vol(list, connector, info));
    OK(H5VLfree_connector_info(connector, info));
    OK(H5VLclose(connector));
    return list;
}

static inline hid_t create_shared(const char *path) {
    hid_t list = shared_access(), file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, list);
    OK(file);
    OK(H5Pclose(list));
    return file;
}

static inline hid_t open_shared(const char *path, unsigned flags) {
    hid_t list = shared_access(), file = H5Fopen(path, flags, list);
    OK(file);
    OK(H5Pclose(list));
    return file;
}

static inline hid_t transfer_list(bool is_collective) {
    hid_t list = H5Pcreate(H5P_DATASET_XFER);
    OK(H5Pset_dxpl_mpio(list, is_collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT));
    return list;
}

/* -- datasets of equal parts ----------------------------------------------------------------- */

static inline hid_t create_parts_of(hid_t file, const char *name, hid_t type, hsize_t each,
                                    hid_t dcpl) {
    hsize_t all = each * (hsize_t)ranks;
    hid_t space = H5Screate_simple(1, &all, NULL);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    OK(H5Sclose(space));
    return dataset;
}

static inline hid_t create_parts(hid_t file, const char *name, hid_t dcpl) {
    return create_parts_of(file, name, H5T_NATIVE_INT, EACH, dcpl);
}

/* Elements of the dataset from `start` on, and as many in memory. */
typedef struct {
    hid_t memory, file;
} selection;

static inline selection select_from(hid_t dataset, hsize_t start, hsize_t count) {
    selection made = {H5Screate_simple(1, &count, NULL), H5Dget_space(dataset)};
    OK(made.memory);
    OK(H5Sselect_hyperslab(made.file, H5S_SELECT_SET, &start, NULL, &count, NULL));
    return made;
}

static inline void close_selection(selection made) {
    OK(H5Sclose(made.memory));
    OK(H5Sclose(made.file));
}

static inline void write_from(hid_t dataset, hsize_t start, hsize_t count, const void *from,
                              hid_t list, hid_t events) {
    selection at = select_from(dataset, start, count);
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, at.memory, at.file, list, from, events));
    close_selection(at);
}

static inline void read_from(hid_t dataset, hsize_t start, hsize_t count, void *to, hid_t list,
                             hid_t events) {
    selection at = select_from(dataset, start, count);
    OK(H5Dread_async(dataset, H5T_NATIVE_INT, at.memory, at.file, list, to, events));
    close_selection(at);
}

static inline void write_part(hid_t dataset, const void *from, hid_t list, hid_t events) {
    write_from(dataset, (hsize_t)rank * EACH, EACH, from, list, events);
}

static inline void read_part(hid_t dataset, int of, void *to, hid_t list, hid_t events) {
    read_from(dataset, (hsize_t)of * EACH, EACH, to, list, events);
}

/* The values of the part of a rank. */
static inline int seed_of(int of, int seed) { return seed * 64 + of; }

static inline void *new_part(int seed) {
    int *made = values(EACH, seed_of(rank, seed));
    void *memory = new_memory_with(made, EACH * sizeof *made);
    free(made);
    return memory;
}

static inline bool dataset_has_parts(hid_t dataset, int seed) {
    int *found = allocate((size_t)ranks * EACH * sizeof *found);
    OK(read_whole(dataset, found));
    bool has = true;
    for (int of = 0; of < ranks && has; of++) {
        int *expected = values(EACH, seed_of(of, seed));
        has = memcmp(found + (size_t)of * EACH, expected, EACH * sizeof *expected) == 0;
        free(expected);
    }
    free(found);
    return has;
}

/* Called by all ranks. The last one reads the closed file, without MPI. */
static inline void check_parts(const char *path, const char *name, int seed) {
    barrier();
    if (rank == ranks - 1) {
        hid_t file = open_by_sec2(path, H5F_ACC_RDONLY);
        hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
        OK(dataset);
        CHECK(dataset_has_parts(dataset, seed));
        OK(H5Dclose(dataset));
        OK(H5Fclose(file));
    }
    barrier();
}

/* -- operations that go on ------------------------------------------------------------------- */

/* HDF5 alone has none. */
#define CHECK_UNDER_WAY(events, count) CHECK(count_of(events) == (is_alone() ? 0 : (size_t)(count)))

static inline void hold_bytes(void) {
    if (!is_alone()) hold();
}

static inline void wait_for_held_bytes(void) {
    if (!is_alone()) wait_for_held_call();
}

/* Held writes arrive when this thread has read a block that it may write back; later, if it waits for them
 * first. */
static inline void let_arrive(size_t bytes) {
    if (bytes < EACH) return;
    release_held();
    usleep(50000);
}

static inline void *let_go_on_at_last(void *unused) {
    usleep(700000);
    release_held();
    return unused;
}

static pthread_t at_last;

static inline void let_go_on_when_read(void) {
    has_read = let_arrive;
    CHECK(pthread_create(&at_last, NULL, let_go_on_at_last, NULL) == 0);
}

static inline void has_let_go_on(void) {
    CHECK(pthread_join(at_last, NULL) == 0);
    has_read = NULL;
}

#endif
