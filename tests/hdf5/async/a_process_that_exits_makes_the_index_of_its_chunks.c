#include "events.h"

/* HDF5 makes it with the first chunk, and cannot begin to when it is ending. Each kind is used for the
 * first time here. */
static void leave(hsize_t most) {
    begin();
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), list = chunked(10000), events = new_events();
    OK(H5Pset_libver_bounds(fapl, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    const hsize_t count = MANY;
    hid_t space = H5Screate_simple(1, &count, &most);
    OK(space);
    hid_t dataset =
        H5Dcreate2(file, "x", H5T_NATIVE_INT, space, H5P_DEFAULT, list, H5P_DEFAULT);
    OK(dataset);
    int *these = values(MANY, 1);
    OK(write_later(dataset, these, events));
    free(these);
    exit(0);
}

int main(int argc, char **argv) {
    if (argc > 1) leave(strcmp(argv[1], "grows") == 0 ? H5S_UNLIMITED : MANY);
    begin();
    const char *roles[] = {"grows", "stays"};
    for (int i = 0; i < 2; i++) {
        CHECK(run(argv[0], roles[i]) == 0);
        CHECK(file_has_values("file.h5", "x", MANY, 1));
    }
    return 0;
}
