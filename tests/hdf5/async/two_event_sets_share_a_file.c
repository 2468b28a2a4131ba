#include "events.h"

/* Only one of them reports a failure. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), one = new_events(), two = new_events();
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t fails = create_dataset(file, "fails", MANY, dcpl);
    hid_t works = create_dataset(file, "works", MANY, dcpl);
    int *these = values(MANY, 1);
    fail_at((off_t)H5Dget_offset(fails) + 5000, EIO);
    OK(write_later(fails, these, one));
    OK(write_later(works, these, two));
    finish_all(two);
    CHECK_SAYS(failure_of(one, "H5Dwrite_async"), "Input/output error");
    fail_no_more();

    /* A set with a failure takes no more operations. */
    CHECK(write_later(works, these, one) < 0);
    OK(write_later(works, these, two));
    close_events(two);
    OK(H5ESclose(one));
    OK(H5Dclose(fails));
    OK(H5Dclose(works));
    CHECK(has_values(file, "works", MANY, 1));
    OK(H5Fclose(file));
    OK(H5Pclose(dcpl));
    free(these);
    return 0;
}
