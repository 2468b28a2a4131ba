#include "ranks.h"

#include <signal.h>
#include <sys/resource.h>

/* The limit of one rank ends within its own part. The parts of the others are there, and all ranks close the file. */
static void limit_length(rlim_t bytes) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void check_others(void) {
    barrier();
    hid_t file = open_shared("x.h5", H5F_ACC_RDONLY), dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    hid_t list = transfer_list(false);
    OK(dataset);
    int *found = allocate(EACH * sizeof *found);
    for (int of = 0; of < ranks; of++) {
        int *expected = values(EACH, seed_of(of, 1));
        read_part(dataset, of, found, list, H5ES_NONE);
        CHECK((memcmp(found, expected, EACH * sizeof *found) == 0) == (of != ranks - 1 || is_alone()));
        free(expected);
    }
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    free(found);
}

int main(int count, char **words) {
    begin_ranks(count, words);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    hid_t file = create_shared("x.h5"), dataset = create_parts(file, "x", H5P_DEFAULT);
    hid_t list = transfer_list(true), events = new_events();
    int *mine = values(EACH, seed_of(rank, 1));
    bool fails = rank == ranks - 1 && !is_alone();
    if (fails) limit_length((rlim_t)(ranks - 1) * EACH * sizeof *mine + EACH);
    write_part(dataset, mine, list, events);
    if (fails) {
        CHECK_SAYS(failure_of(events, "H5Dwrite_async"), "File too large");
        OK(H5ESclose(events));
        limit_length(RLIM_INFINITY);
    } else {
        close_events(events);
    }
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(list));
    free(mine);
    check_others();
    return end_ranks();
}
