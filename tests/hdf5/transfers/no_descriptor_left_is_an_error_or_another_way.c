#include "../memory.h"

#include <sys/resource.h>

enum { COUNT = 3000001 };

int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    int *these = values(COUNT, 1);
    void *memory = new_memory_with(these, COUNT * sizeof(int));
    struct rlimit old, low;
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    low = old;
    low.rlim_cur = 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    CHECK(H5Fcreate("other.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT) < 0);
    CHECK_ERROR_SAYS("errno = 24");
    /* One descriptor is enough for host memory, as it is for HDF5's own driver. */
    if (write_whole(dataset, memory) < 0) {
        CHECK_ERROR_SAYS("errno = 24");
        CHECK(is_on_device());
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
    OK(write_whole(dataset, memory));
    OK(read_whole(dataset, memory));
    CHECK(memory_holds(memory, these, COUNT * sizeof(int)));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", COUNT, 1));
    free_memory(memory);
    free(these);
    return 0;
}
