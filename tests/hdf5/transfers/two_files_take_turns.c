#include "../memory.h"

enum { COUNT = 70001, TURNS = 6 };

int main(void) {
    begin();
    hid_t files[2] = {create_file("one.h5"), create_file("two.h5")};
    void *found = new_memory(COUNT * sizeof(int));
    for (int turn = 0; turn < TURNS; turn++) {
        char name[2] = {(char)('a' + turn / 2), 0};
        hid_t dataset = create_dataset(files[turn % 2], name, COUNT, H5P_DEFAULT);
        int *these = values(COUNT, turn);
        void *memory = new_memory_with(these, COUNT * sizeof(int));
        OK(write_whole(dataset, memory));
        OK(read_whole(dataset, found));
        CHECK(memory_has_values(found, COUNT, turn));
        OK(H5Dclose(dataset));
        free_memory(memory);
        free(these);
    }
    OK(H5Fclose(files[0]));
    OK(H5Fclose(files[1]));
    for (int turn = 0; turn < TURNS; turn++) {
        char name[2] = {(char)('a' + turn / 2), 0};
        CHECK(sec2_finds_values(turn % 2 ? "two.h5" : "one.h5", name, COUNT, turn));
    }
    free_memory(found);
    return 0;
}
