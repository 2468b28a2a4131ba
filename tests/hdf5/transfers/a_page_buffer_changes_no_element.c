/* Points and ranges are written to a file whose access list has a page buffer, and read back among
 * large reads that begin within a page. */
#include "../memory.h"

enum { COUNT = 39390, ROUNDS = 25, MOST = 3000, POINTS = 40, CHUNK = 1900 };

static unsigned long long seed;

static unsigned below(unsigned limit) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(seed >> 33) % limit;
}

static unsigned select_some(hid_t space, hsize_t *at) {
    if (below(3)) {
        hsize_t count = 1 + below(POINTS), first = below(COUNT);
        for (hsize_t i = 0; i < count; i++) at[i] = (first + i * 7919) % COUNT;
        OK(H5Sselect_elements(space, H5S_SELECT_SET, count, at));
        return (unsigned)count;
    }
    hsize_t count = 1 + below(MOST), start = below(COUNT - (unsigned)count);
    for (hsize_t i = 0; i < count; i++) at[i] = start + i;
    OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, NULL, &count, NULL));
    return (unsigned)count;
}

static void write_some(hid_t dataset, int *model) {
    static hsize_t at[MOST];
    hsize_t all = COUNT;
    hid_t in_file = H5Screate_simple(1, &all, NULL);
    hsize_t count = select_some(in_file, at);
    hid_t in_memory = H5Screate_simple(1, &count, NULL);
    int *these = values(count, (int)below(1000));
    void *memory = new_memory_with(these, count * sizeof(int));
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, in_memory, in_file, H5P_DEFAULT, memory));
    for (hsize_t i = 0; i < count; i++) model[at[i]] = these[i];
    free_memory(memory);
    free(these);
    OK(H5Sclose(in_memory));
    OK(H5Sclose(in_file));
}

static void check_read(hid_t dataset, hsize_t start, hsize_t count, const int *model) {
    hsize_t all = COUNT;
    hid_t in_file = H5Screate_simple(1, &all, NULL), in_memory = H5Screate_simple(1, &count, NULL);
    OK(H5Sselect_hyperslab(in_file, H5S_SELECT_SET, &start, NULL, &count, NULL));
    void *memory = new_memory(count * sizeof(int));
    OK(H5Dread(dataset, H5T_NATIVE_INT, in_memory, in_file, H5P_DEFAULT, memory));
    CHECK(memory_holds(memory, model + start, count * sizeof(int)));
    free_memory(memory);
    OK(H5Sclose(in_memory));
    OK(H5Sclose(in_file));
}

static void check_dataset(hid_t file, const char *name, hid_t dcpl, hid_t dapl) {
    hsize_t all = COUNT;
    hid_t space = H5Screate_simple(1, &all, NULL);
    hid_t dataset = H5Dcreate2(file, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, dapl);
    OK(dataset);
    int *model = values(COUNT, 1);
    void *memory = new_memory_with(model, COUNT * sizeof(int));
    OK(write_whole(dataset, memory));
    free_memory(memory);
    for (int round = 0; round < ROUNDS; round++) {
        write_some(dataset, model);
        check_read(dataset, 0, COUNT, model);
        unsigned start = below(COUNT);
        check_read(dataset, start, 1 + below(COUNT - start), model);
    }
    OK(H5Dclose(dataset));
    OK(H5Sclose(space));
    free(model);
}

int main(void) {
    begin();
    static const hsize_t page_sizes[] = {512, 4096, 131072};
    for (int i = 0; i < 3; i++) {
        seed = (unsigned long long)i;
        hid_t fcpl = H5Pcreate(H5P_FILE_CREATE), fapl = H5Pcreate(H5P_FILE_ACCESS);
        OK(H5Pset_file_space_strategy(fcpl, H5F_FSPACE_STRATEGY_PAGE, 0, 1));
        OK(H5Pset_file_space_page_size(fcpl, page_sizes[i]));
        OK(H5Pset_page_buffer_size(fapl, 4 * page_sizes[i], 0, 0));
        hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, fcpl, fapl);
        OK(file);
        hid_t chunked = H5Pcreate(H5P_DATASET_CREATE), no_cache = H5Pcreate(H5P_DATASET_ACCESS);
        hsize_t chunk = CHUNK;
        OK(H5Pset_chunk(chunked, 1, &chunk));
        OK(H5Pset_chunk_cache(no_cache, 0, 0, 0));
        check_dataset(file, "contiguous", H5P_DEFAULT, H5P_DEFAULT);
        check_dataset(file, "chunked", chunked, H5P_DEFAULT);
        check_dataset(file, "no cache", chunked, no_cache);
        OK(H5Fclose(file));
    }
    return 0;
}
