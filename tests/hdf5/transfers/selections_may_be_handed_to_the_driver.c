#include "../selections.h"

#include <H5FDdevelop.h>

/* By the function of H5FD; the element size of the first holds for the rest, as does its memory. */
static H5FD_t *open_driver(hid_t fapl, unsigned flags) {
    H5FD_t *file = H5FDopen("file", flags, fapl, HADDR_UNDEF);
    CHECK(file != NULL);
    OK(H5FDset_eoa(file, H5FD_MEM_DEFAULT, 2 * BYTES));
    return file;
}

int main(void) {
    begin();
    static selection in_file, in_memory;
    select_hyperslab(&in_file, 3, 5);
    select_points(&in_memory, 17);
    hid_t ours = H5Pcreate(H5P_FILE_ACCESS), theirs = sec2();
    hid_t file_spaces[2] = {in_file.space, in_file.space};
    hid_t memory_spaces[2] = {in_memory.space, in_memory.space};
    haddr_t offsets[2] = {BYTES, 0};
    size_t element_sizes[2] = {sizeof(int), 0};
    int *source = values(ELEMENTS, 1), *expected = values(ELEMENTS, 2);
    void *from = new_memory_with(source, BYTES), *to = new_memory_with(expected, BYTES);
    const void *sources[2] = {from, NULL};
    void *found[2] = {to, NULL};
    H5FD_t *file = open_driver(ours, H5F_ACC_RDWR | H5F_ACC_CREAT);
    OK(H5FDwrite_selection(file, H5FD_MEM_DRAW, H5P_DEFAULT, 2, memory_spaces, file_spaces, offsets,
                           element_sizes, sources));
    OK(H5FDread_selection(file, H5FD_MEM_DRAW, H5P_DEFAULT, 2, memory_spaces, file_spaces, offsets,
                          element_sizes, found));
    for (size_t i = 0; i < in_memory.count; i++)
        expected[in_memory.at[i]] = source[in_memory.at[i]];
    CHECK(memory_holds(to, expected, BYTES));
    OK(H5FDclose(file));

    int *stored = allocate(BYTES);
    file = open_driver(theirs, H5F_ACC_RDONLY);
    for (int part = 0; part < 2; part++) {
        OK(H5FDread(file, H5FD_MEM_DRAW, H5P_DEFAULT, offsets[part], BYTES, stored));
        int *model = calloc(ELEMENTS, sizeof(int));
        for (size_t i = 0; i < in_file.count; i++) model[in_file.at[i]] = source[in_memory.at[i]];
        CHECK(memcmp(stored, model, BYTES) == 0);
        free(model);
    }
    OK(H5FDclose(file));
    return 0;
}
