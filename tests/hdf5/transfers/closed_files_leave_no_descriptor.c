#include "../memory.h"

#include <dirent.h>

enum { COUNT = 1500000 };

static int open_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    int number = 0;
    while (readdir(folder) != NULL) number++;
    CHECK(closedir(folder) == 0);
    return number;
}

int main(void) {
    begin();
    int *these = values(COUNT, 1), before = 0;
    void *memory = new_memory_with(these, COUNT * sizeof(int));
    for (int turn = 0; turn < 20; turn++) {
        hid_t file = create_file("file.h5");
        hid_t dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
        OK(write_whole(dataset, memory));
        OK(read_whole(dataset, memory));
        OK(H5Dclose(dataset));
        OK(H5Fclose(file));
        CHECK(H5Fopen("absent.h5", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
        if (turn == 0) before = open_descriptors();
    }
    CHECK(open_descriptors() == before);
    free_memory(memory);
    free(these);
    return 0;
}
