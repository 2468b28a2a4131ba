#include "events.h"

enum { SOME = 100 };

/* Also when plain writes may continue. The next small one reports the failure of a large one. */
int main(void) {
    begin_with("implicit=1");
    hid_t file = make_file("file.h5"), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t small = create_dataset(file, "small", SOME, H5P_DEFAULT);
    hid_t large = create_dataset(file, "large", MANY, dcpl);
    int *these = values(MANY, 1), *found = allocate(MANY * sizeof(int));

    /* Nothing is left to be done when its file is held. */
    OK(write_whole(small, these));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    hold();
    OK(write_whole(large, these));
    wait_for_held_call();
    OK(write_whole(small, these + SOME));
    OK(read_whole(small, found));
    CHECK(memcmp(found, these + SOME, SOME * sizeof(int)) == 0);
    release_held();
    OK(read_whole(large, found));
    CHECK(memcmp(found, these, MANY * sizeof(int)) == 0);

    fail_at((off_t)(H5Dget_offset(large) + MANY * sizeof(int) / 2), ENOSPC);
    OK(write_whole(large, these));
    bool was_told = false;
    for (int i = 0; i < 10000 && !was_told; i++) {
        was_told = write_whole(small, these) < 0;
        usleep(1000);
    }
    CHECK(was_told);
    CHECK_ERROR_SAYS("No space left on device");
    fail_no_more();
    OK(write_whole(small, these));
    OK(write_whole(large, these));
    OK(H5Pclose(dcpl));
    OK(H5Dclose(small));
    OK(H5Dclose(large));
    OK(H5Fclose(file));
    CHECK(file_has_values("file.h5", "small", SOME, 1));
    CHECK(file_has_values("file.h5", "large", MANY, 1));
    free(these);
    free(found);
    return 0;
}
