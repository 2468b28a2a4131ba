#include "events.h"

/* A dataset whose last write fails in the background, and the file that it is in. */
static hid_t file_with_a_failure(hid_t *dataset) {
    int *from = values(MANY, 1);
    hsize_t length = MANY;
    hid_t file = make_file("file.h5"), space = H5Screate_simple(1, &length, NULL);
    *dataset = H5Dcreate2(file, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(*dataset);
    OK(H5Dwrite(*dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, from));
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    /* HDF5 reads the first and the last element before. */
    fail_at((off_t)H5Dget_offset(*dataset) + MANY, EIO);
    OK(H5Dwrite(*dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, from));
    OK(H5Sclose(space));
    free(from);
    return file;
}

int main(void) {
    begin_with("implicit=1");
    hid_t dataset, file = file_with_a_failure(&dataset), events = new_events();
    OK(H5Dclose(dataset));
    OK(H5Fclose_async(file, events));
    CHECK_SAYS(failure_of(events, "H5Fclose_async"), "Input/output error");
    OK(H5ESclose(events));
    fail_no_more();

    file = file_with_a_failure(&dataset);
    events = new_events();
    OK(H5Fflush_async(file, H5F_SCOPE_GLOBAL, events));
    CHECK_SAYS(failure_of(events, "H5Fflush_async"), "Input/output error");
    OK(H5ESclose(events));
    fail_no_more();
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    return 0;
}
