#include "ranks.h"

#include <sys/resource.h>

/* One rank has no descriptor left, or few, when all open a file. All ranks return, and where they open it, they write and
 * read together. */
static rlim_t limit_descriptors(rlim_t count) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = count;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return before;
}

int main(int count, char **words) {
    enum { MOST = 6 };
    int opened = 0;
    begin_ranks(count, words);
    hid_t created = create_shared("x.h5");
    OK(H5Dclose(create_parts(created, "x", H5P_DEFAULT)));
    OK(H5Fclose(created));
    for (rlim_t left = 0; left < MOST; left++) {
        rlim_t before = 0;
        if (rank == 1) {
            const int next = dup(0);
            CHECK(next >= 0);
            OK(close(next));
            before = limit_descriptors((rlim_t)next + left);
        }
        hid_t list = shared_access(), file = H5Fopen("x.h5", H5F_ACC_RDWR, list);
        OK(H5Pclose(list));
        int is_open = file >= 0, all;
        MPI_Allreduce(&is_open, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(all == 0 || all == ranks);
        if (is_open) {
            hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT), transfer = transfer_list(true);
            int *mine = values(EACH, seed_of(rank, (int)left)), *found = allocate(EACH * sizeof *found);
            OK(dataset);
            write_part(dataset, mine, transfer, H5ES_NONE);
            read_part(dataset, (rank + 1) % ranks, found, transfer, H5ES_NONE);
            free(mine);
            mine = values(EACH, seed_of((rank + 1) % ranks, (int)left));
            CHECK(memcmp(found, mine, EACH * sizeof *found) == 0);
            OK(H5Dclose(dataset));
            OK(H5Pclose(transfer));
            OK(H5Fclose(file));
            free(mine);
            free(found);
            opened++;
        }
        if (rank == 1) limit_descriptors(before);
    }
    CHECK(opened > 0);
    return end_ranks();
}
