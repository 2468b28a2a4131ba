#include "ranks.h"

#include <sys/syscall.h>
#include <sys/vfs.h>

/* A rank on the server of a network file system sees the server's own file system. */
static bool is_client;

int statfs(const char *path, struct statfs *answer) {
    int status = (int)syscall(SYS_statfs, path, answer);
    if (status == 0 && is_client) answer->f_type = 0x6969;
    return status;
}

int statfs64(const char *path, struct statfs64 *answer) { return statfs(path, (struct statfs *)answer); }

int main(int count, char **words) {
    begin_ranks(count, words);
    hid_t list = transfer_list(true), events = new_events();
    is_client = rank == 1;
    hid_t file = create_shared("x.h5"), dataset = create_parts(file, "x", H5P_DEFAULT);
    void *memory = new_part(1);
    write_part(dataset, memory, list, events);
    finish_all(events);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    file = open_shared("x.h5", H5F_ACC_RDONLY);
    dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    OK(dataset);
    read_part(dataset, (rank + 1) % ranks, memory, list, events);
    finish_all(events);
    int *expected = values(EACH, seed_of((rank + 1) % ranks, 1));
    CHECK(memory_holds(memory, expected, EACH * sizeof *expected));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    close_events(events);
    free_memory(memory);
    free(expected);
    check_parts("x.h5", "x", 1);
    return end_ranks();
}
