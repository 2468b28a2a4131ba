/* H5S_BLOCK in place of a dataspace of the memory is as many elements side by side as are selected in the
 * file. */
#include "events.h"

int main(void) {
    begin();
    const hsize_t start = 1000, count = MANY - 2000;
    const size_t bytes = count * sizeof(int);
    hid_t events = new_events(), file = make_file("block.h5"), list = chunked(MANY / 8);
    hid_t datasets[] = {create_dataset(file, "contiguous", MANY, H5P_DEFAULT),
                        create_dataset(file, "chunked", MANY, list)};
    hid_t space = slab(MANY, start, count);
    int *these = values(MANY, 1), *zeros = allocate(bytes);
    memset(zeros, 0, bytes);
    void *from = new_memory_with(these, bytes), *to = new_memory_with(zeros, bytes);
    for (int i = 0; i < 2; i++) {
        hid_t d = datasets[i];
        OK(H5Dwrite_async(d, H5T_NATIVE_INT, H5S_BLOCK, space, H5P_DEFAULT, from, events));
        OK(H5Dread_async(d, H5T_NATIVE_INT, H5S_BLOCK, space, H5P_DEFAULT, to, events));
        finish_all(events);
        CHECK(memory_has_values(to, count, 1));
        copy_memory(to, zeros, bytes);
        OK(H5Dread(d, H5T_NATIVE_INT, H5S_BLOCK, space, H5P_DEFAULT, to));
        CHECK(memory_has_values(to, count, 1));
        OK(H5Dwrite(d, H5T_NATIVE_INT, H5S_BLOCK, space, H5P_DEFAULT, from));
        copy_memory(to, zeros, bytes);
        OK(H5Dread_async(d, H5T_NATIVE_INT, H5S_BLOCK, space, H5P_DEFAULT, to, events));
        finish_all(events);
        CHECK(memory_has_values(to, count, 1));
        OK(H5Dclose(d));
    }
    close_events(events);
    free_memory(from);
    free_memory(to);
    free(these);
    free(zeros);
    OK(H5Sclose(space));
    OK(H5Pclose(list));
    OK(H5Fclose(file));
    return 0;
}
