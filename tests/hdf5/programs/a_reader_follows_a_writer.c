#include "../check.h"

/* Single writer, multiple readers: what the writer has flushed is there for the reader, while the
 * writer goes on. */
enum { STEP = 1000, STEPS = 8 };

static void check_steps(int from, int to) {
    char byte = 0;
    CHECK(write(to, &byte, 1) == 1 && read(from, &byte, 1) == 1);
}

static int reader(int from, int to) {
    char byte;
    CHECK(read(from, &byte, 1) == 1);
    hid_t file = open_file("file.h5", H5F_ACC_RDONLY | H5F_ACC_SWMR_READ);
    hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(dataset);
    for (hsize_t step = 1; step <= STEPS; step++) {
        check_steps(from, to);
        OK(H5Drefresh(dataset));
        hid_t space = H5Dget_space(dataset);
        hsize_t count = 0;
        CHECK(H5Sget_simple_extent_dims(space, &count, NULL) == 1 && count >= step * STEP);
        OK(H5Sclose(space));
        int *found = allocate(count * sizeof(int));
        OK(read_whole(dataset, found));
        for (size_t i = 0; i < step * STEP; i++) CHECK(found[i] == value_at(i, 1));
        free(found);
    }
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    return 0;
}

int main(int count, char **arguments) {
    begin();
    if (count > 1) return reader(3, 4);

    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    CHECK(is_driven_by_penstock(file));
    const hsize_t chunk = 300, none = 0, limit = H5S_UNLIMITED;
    OK(H5Pset_chunk(dcpl, 1, &chunk));
    hid_t space = H5Screate_simple(1, &none, &limit);
    hid_t dataset =
        H5Dcreate2(file, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    OK(dataset);
    OK(H5Fstart_swmr_write(file));

    int there[2], back[2];
    CHECK(pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int from = fcntl(there[0], F_DUPFD, 10), to = fcntl(back[1], F_DUPFD, 10);
        dup2(from, 3);
        dup2(to, 4);
        execl(arguments[0], arguments[0], "reader", (char *)NULL);
        _exit(126);
    }
    CHECK(close(there[0]) == 0 && close(back[1]) == 0);
    char byte = 0;
    CHECK(write(there[1], &byte, 1) == 1);
    int *these = values(STEP * STEPS, 1);
    for (hsize_t step = 0; step < STEPS; step++) {
        const hsize_t extent = (step + 1) * STEP, first = step * STEP, many = STEP;
        OK(H5Dset_extent(dataset, &extent));
        hid_t in_file = H5Dget_space(dataset), in_memory = H5Screate_simple(1, &many, NULL);
        OK(H5Sselect_hyperslab(in_file, H5S_SELECT_SET, &first, NULL, &many, NULL));
        OK(H5Dwrite(dataset, H5T_NATIVE_INT, in_memory, in_file, H5P_DEFAULT, these + first));
        OK(H5Dflush(dataset));
        OK(H5Sclose(in_memory));
        OK(H5Sclose(in_file));
        CHECK(read(back[0], &byte, 1) == 1 && write(there[1], &byte, 1) == 1);
    }
    CHECK(finish(child) == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", STEP * STEPS, 1));
    free(these);
    return 0;
}
