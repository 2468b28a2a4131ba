#include "ranks.h"

enum { DATASETS = 3 };
static const char *const names[DATASETS] = {"contiguous", "chunked", "converted"};

static void check(const char *path, bool is_collective) {
    hid_t file = create_shared(path), chunks = chunked(EACH / 5), list = transfer_list(is_collective);
    const hid_t lists[] = {H5P_DEFAULT, chunks, H5P_DEFAULT};
    const hid_t stored[] = {H5T_NATIVE_INT, H5T_NATIVE_INT, H5T_STD_I64BE};
    hid_t datasets[DATASETS], types[DATASETS], flats[DATASETS], spaces[DATASETS], events = new_events();
    const void *sources[DATASETS];
    void *found[DATASETS];
    for (int i = 0; i < DATASETS; i++) {
        datasets[i] = create_parts_of(file, names[i], stored[i], EACH, lists[i]);
        types[i] = H5T_NATIVE_INT;
        selection at = select_from(datasets[i], (hsize_t)rank * EACH, EACH);
        flats[i] = at.memory, spaces[i] = at.file;
        sources[i] = new_part(i + 1);
        found[i] = new_memory(EACH * sizeof(int));
    }
    OK(H5Dwrite_multi_async(DATASETS, datasets, types, flats, spaces, list, sources, events));
    if (!is_alone()) CHECK(count_of(events) > 0);
    finish_all(events);
    OK(H5Dread_multi_async(DATASETS, datasets, types, flats, spaces, list, found, events));
    close_events(events);
    for (int i = 0; i < DATASETS; i++) {
        CHECK(memory_has_values(found[i], EACH, seed_of(rank, i + 1)));
        OK(H5Sclose(flats[i]));
        OK(H5Sclose(spaces[i]));
        OK(H5Dclose(datasets[i]));
        free_memory((void *)sources[i]);
        free_memory(found[i]);
    }
    OK(H5Pclose(list));
    OK(H5Pclose(chunks));
    OK(H5Fclose(file));
    for (int i = 0; i < DATASETS; i++) check_parts(path, names[i], i + 1);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    check("together.h5", true);
    check("alone.h5", false);
    return end_ranks();
}
