#include "../memory.h"

/* Larger than a block of any route, and neither its offset in the file, which a user block shifts,
 * nor in memory is a multiple of anything. */
enum { COUNT = 6 * 1000 * 1000 + 17, SKIPPED = 12347 };

int main(void) {
    begin();
    hid_t fcpl = H5Pcreate(H5P_FILE_CREATE);
    OK(H5Pset_userblock(fcpl, 512));
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, fcpl, H5P_DEFAULT);
    OK(file);
    put_values(file, "shift", 3, 0);
    hid_t dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    int *written = values(COUNT, 1);
    char *memory = new_memory(COUNT * sizeof(int) + 4);
    copy_memory(memory + 4, written, COUNT * sizeof(int));
    OK(write_whole(dataset, memory + 4));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", COUNT, 1));

    file = open_file("file.h5", H5F_ACC_RDONLY);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    const hsize_t start = SKIPPED, count = COUNT - 2 * SKIPPED;
    hid_t from = H5Dget_space(dataset), to = H5Screate_simple(1, &count, NULL);
    OK(H5Sselect_hyperslab(from, H5S_SELECT_SET, &start, NULL, &count, NULL));
    char *other = new_memory(COUNT * sizeof(int) + 4);
    OK(H5Dread(dataset, H5T_NATIVE_INT, to, from, H5P_DEFAULT, other + 4));
    CHECK(memory_holds(other + 4, written + SKIPPED, count * sizeof(int)));
    OK(read_whole(dataset, other + 4));
    CHECK(memory_holds(other + 4, written, COUNT * sizeof(int)));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(other);
    free_memory(memory);
    free(written);
    return 0;
}
