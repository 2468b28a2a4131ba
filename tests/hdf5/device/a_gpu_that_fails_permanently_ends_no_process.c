#include "../memory.h"

enum { COUNT = 3000000 };

/* An asynchronous failure spoils the context: every later call of CUDA fails. */
int main(void) {
    begin();
    need_standin();
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    int *these = values(COUNT, 1);
    OK(write_whole(dataset, these));
    void *memory = device_memory(COUNT * sizeof(int));
    CHECK(setenv("CUDASIM_FAIL", "copyexec:*", 1) == 0);
    CHECK(read_whole(dataset, memory) < 0);
    CHECK(read_whole(dataset, memory) < 0);
    CHECK(write_whole(dataset, memory) < 0);
    OK(read_whole(dataset, these));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(unsetenv("CUDASIM_FAIL") == 0);
    CHECK(sec2_finds_values("file.h5", "x", COUNT, 1));
    return 0;
}
