#include "events.h"

#include <sys/file.h>

static hid_t file_with_a_failure(const int *from) {
    hid_t file = make_file("file.h5"), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    OK(H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER));
    hid_t dataset = create_dataset(file, "x", MANY, dcpl);
    OK(H5Pclose(dcpl));
    fail_at((off_t)(H5Dget_offset(dataset) + MANY * sizeof(int) / 2), ENOSPC);
    OK(write_whole(dataset, from));
    OK(H5Dclose(dataset));
    return file;
}

/* The file is closed: another process may open it, and no descriptor is left. */
static void check_closed(void) {
    int descriptor = open("file.h5", O_RDWR);
    CHECK(descriptor >= 0);
    CHECK(flock(descriptor, LOCK_EX | LOCK_NB) == 0);
    CHECK(close(descriptor) == 0);
}

int main(void) {
    begin_with("implicit=1");
    int *these = values(MANY, 1);
    hid_t file = file_with_a_failure(these);
    CHECK(H5Fclose(file) < 0);
    CHECK_ERROR_SAYS("No space left on device");
    check_closed();

    /* HDF5 keeps the identifier when closing fails. It refers to no file, and is closed as any other. */
    CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL) < 0);
    CHECK(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) < 0);
    hid_t other = make_file("other.h5");
    CHECK(H5Ocopy(other, "/", file, "copy", H5P_DEFAULT, H5P_DEFAULT) < 0);
    CHECK(H5Fmount(other, "/", file, H5P_DEFAULT) < 0);
    OK(H5Fclose(other));
    OK(H5Fclose(file));
    CHECK(H5Fclose(file) < 0);

    /* The same for one that is never closed again. */
    fail_no_more();
    file = file_with_a_failure(these);
    CHECK(H5Fclose(file) < 0);
    CHECK(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) >= 0);
    check_closed();
    fail_no_more();
    file = look_at_file("file.h5");
    OK(H5Fclose(file));
    free(these);
    return 0;
}
