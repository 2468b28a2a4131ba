#include "events.h"

/* The linker gives a program that names them copies of its own (R_X86_64_COPY), which HDF5 uses then
 * instead of those that are found in the library. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1), *others = values(MANY, 2);
    int *from = new_memory_with(these, MANY * sizeof *these);
    hold();
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DATASET_XFER_DEFAULT, from,
                      events));
    CHECK(count_of(events) == 1);
    wait_for_held_call();
    release_held();
    finish_all(events);
    free_memory(from);

    /* Nor is the text of a failure lost. */
    CHECK(H5E_ERR_CLS > 0 && H5E_VOL > 0 && H5E_CANTOPERATE > 0);
    from = new_memory_with(others, MANY * sizeof *others);
    fail_at((off_t)(H5Dget_offset(dataset) + MANY * sizeof(int) / 2), EIO);
    OK(write_later(dataset, from, events));
    CHECK_SAYS(failure_of(events, "H5Dwrite_async"), "file.h5");
    fail_no_more();
    free_memory(from);
    OK(H5ESclose(events));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(these);
    free(others);
    return 0;
}
