#include "events.h"

enum { ELEMENTS = 200000 };

static unsigned long number_of(hid_t file) {
    H5O_info2_t info;
    OK(H5Oget_info3(file, &info, H5O_INFO_BASIC));
    return info.fileno;
}

int main(void) {
    begin();
    int *these = values(ELEMENTS, 1);
    hid_t file = make_file("whole.h5"), dataset = filled_dataset(file, ELEMENTS);
    OK(H5Dwrite(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, these));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));

    /* No space is left behind the first blocks: the storage is not finished. */
    OK(H5close());
    begin();
    file = make_file("full.h5");
    dataset = filled_dataset(file, ELEMENTS);
    const unsigned long before = number_of(file);
    hid_t events = new_events();
    fail_at(100000, ENOSPC);
    CHECK(write_later(dataset, these, events) < 0);
    fail_no_more();
    OK(H5ESclose(events));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));

    /* HDF5 restarts its file numbers, and another file gets this number. */
    OK(H5close());
    begin();
    file = look_at_file("whole.h5");
    CHECK(number_of(file) == before);
    CHECK(has_values(file, "x", ELEMENTS, 1));
    OK(H5Fclose(file));
    free(these);
    return 0;
}
