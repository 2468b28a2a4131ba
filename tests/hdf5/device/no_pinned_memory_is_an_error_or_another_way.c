#include "../memory.h"

enum { COUNT = 3000000 };

/* Never wrong bytes. */
int main(void) {
    begin();
    need_standin();
    CHECK(setenv("CUDASIM_FAIL", "hostalloc:*,hostregister:*", 1) == 0);
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    int *these = values(COUNT, 1);
    void *memory = device_memory(COUNT * sizeof(int));
    OK(write_whole(dataset, these));
    if (read_whole(dataset, memory) < 0)
        CHECK_ERROR_SAYS("CUDA_ERROR_OUT_OF_MEMORY");
    else
        CHECK(memory_has_values(memory, COUNT, 1));
    CHECK(unsetenv("CUDASIM_FAIL") == 0);
    OK(read_whole(dataset, memory));
    CHECK(memory_has_values(memory, COUNT, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(these);
    return 0;
}
