#include "../faults.h"

enum { COUNT = 2000003 };

int main(void) {
    CHECK(setenv("HDF5_DRIVER_CONFIG", "route=staged;block=1MiB", 1) == 0);
    begin();
    most_bytes = 30011;
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    int *these = values(COUNT, 1);
    void *memory = new_memory_with(these, COUNT * sizeof(int)), *found = new_memory(COUNT * 4);
    OK(write_whole(dataset, memory));
    OK(read_whole(dataset, found));
    CHECK(memory_holds(found, these, COUNT * sizeof(int)));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(calls > 2 * 2 * COUNT * sizeof(int) / 30011);
    most_bytes = 0;
    CHECK(sec2_finds_values("file.h5", "x", COUNT, 1));
    free_memory(found);
    free_memory(memory);
    free(these);
    return 0;
}
