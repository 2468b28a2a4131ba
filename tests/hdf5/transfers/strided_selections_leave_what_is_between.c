#include "../rows.h"

static void move_every(hid_t dataset, hsize_t first, hsize_t stride, void *memory, bool is_write) {
    hsize_t count = (VALUES - first + stride - 1) / stride, all = VALUES;
    hid_t in_file = H5Screate_simple(1, &all, NULL), in_memory = H5Screate_simple(1, &count, NULL);
    OK(H5Sselect_hyperslab(in_file, H5S_SELECT_SET, &first, &stride, &count, NULL));
    OK(is_write ? H5Dwrite(dataset, H5T_NATIVE_INT, in_memory, in_file, H5P_DEFAULT, memory)
                : H5Dread(dataset, H5T_NATIVE_INT, in_memory, in_file, H5P_DEFAULT, memory));
    OK(H5Sclose(in_file));
    OK(H5Sclose(in_memory));
}

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    int *model = calloc(VALUES, sizeof(int));
    for (int stride = 1; stride < 12; stride++) {
        int *these = values(VALUES, stride);
        void *memory = new_memory_with(these, VALUES * sizeof(int));
        move_every(dataset, stride / 2, stride, memory, true);
        for (size_t i = stride / 2, j = 0; i < VALUES; i += stride) model[i] = these[j++];
        move_every(dataset, 0, 3, memory, false);
        for (size_t i = 0, j = 0; i < VALUES; i += 3) these[j++] = model[i];
        CHECK(memory_holds(memory, these, VALUES * sizeof(int)));
        free_memory(memory);
        free(these);
    }
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    file = open_by_sec2("file.h5", H5F_ACC_RDONLY);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    int *found = allocate(VALUES * sizeof(int));
    OK(read_whole(dataset, found));
    CHECK(memcmp(found, model, VALUES * sizeof(int)) == 0);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(found);
    free(model);
    return 0;
}
