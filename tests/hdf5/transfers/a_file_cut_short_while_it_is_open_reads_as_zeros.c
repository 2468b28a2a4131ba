#include "../memory.h"

enum { COUNT = 3000000, LEFT = 1000001 };

/* As with HDF5's own driver. */
int main(void) {
    begin();
    hid_t file = create_file("file.h5");
    put_values(file, "x", COUNT, 1);
    OK(H5Fclose(file));
    file = open_file("file.h5", H5F_ACC_RDONLY);
    hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    off_t start = (off_t)H5Dget_offset(dataset);
    CHECK(truncate("file.h5", start + LEFT * (off_t)sizeof(int) + 2) == 0);

    int *expected = values(COUNT, 1);
    memset((char *)(expected + LEFT) + 2, 0, (COUNT - LEFT) * sizeof(int) - 2);
    int *garbage = values(COUNT, 2);
    void *memory = new_memory_with(garbage, COUNT * sizeof(int));
    OK(read_whole(dataset, memory));
    CHECK(memory_holds(memory, expected, COUNT * sizeof(int)));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free_memory(memory);
    free(garbage);
    free(expected);
    return 0;
}
