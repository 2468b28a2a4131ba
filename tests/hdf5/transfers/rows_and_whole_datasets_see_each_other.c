#include "../rows.h"

/* Rows are in host memory; the whole is where the test says. */
int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    void *memory = new_memory(VALUES * sizeof(int));
    for (int seed = 1; seed < 9; seed += 2) {
        write_rows(dataset, 0, ROWS, 1, seed);
        OK(read_whole(dataset, memory));
        CHECK(memory_has_values(memory, VALUES, seed));
        int *these = values(VALUES, seed + 1);
        copy_memory(memory, these, VALUES * sizeof(int));
        free(these);
        OK(write_whole(dataset, memory));
        CHECK(are_rows(dataset, 0, ROWS, 1, seed + 1));
    }
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", VALUES, 8));
    free_memory(memory);
    return 0;
}
