#include "../memory.h"

#include <signal.h>
#include <sys/resource.h>

enum { COUNT = 4000000 };

int main(void) {
    begin();
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    hid_t file = create_file("file.h5"), dataset = create_dataset(file, "x", COUNT, H5P_DEFAULT);
    int *these = values(COUNT, 1);
    void *memory = new_memory_with(these, COUNT * sizeof(int));
    struct rlimit old, low;
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    low = old;
    low.rlim_cur = 3 << 20;
    CHECK(setrlimit(RLIMIT_FSIZE, &low) == 0);
    CHECK(write_whole(dataset, memory) < 0);
    CHECK_ERROR_SAYS("errno = 27");
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    OK(write_whole(dataset, memory));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", COUNT, 1));
    free_memory(memory);
    free(these);
    return 0;
}
