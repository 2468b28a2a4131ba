#include "ranks.h"

/* One rank cannot use its connector when all query or delete a file by its name. The call fails on all ranks, and does
 * nothing. (HDF5 alone uses no connector then.) */
static void check_status(int status, bool fails) {
    const char *why = rank == 1 ? "colour" : "another process of the MPI program has failed";
    CHECK((status < 0) == fails);
    CHECK(!fails || strstr(error_text(), why) != NULL);
}

static void check(bool fails) {
    hid_t list = shared_access();
    check_status(H5Fis_accessible("x.h5", list), fails);
    check_status(H5Fdelete("x.h5", list), fails);
    barrier();
    CHECK((access("x.h5", F_OK) == 0) == fails);
    OK(H5Pclose(list));
}

int main(int count, char **words) {
    begin_ranks(count, words);
    for (int fails = 0; fails < (is_alone() ? 1 : 2); fails++) {
        OK(H5Fclose(create_shared("x.h5")));
        if (fails) {
            OK(H5close());
            if (rank == 1) add_options("colour=red");
            begin();
        }
        check(fails);
    }
    return end_ranks();
}
