#include "../rows.h"

#include <signal.h>

/* A process that is killed has written its rows, as with HDF5's own driver, which writes them when the
 * dataset is closed. */
static void write_and_wait_for_death(void) {
    hid_t file = open_file("file.h5", H5F_ACC_RDWR), dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    write_rows(dataset, 0, 100, 1, 2);
    OK(H5Dclose(dataset));
    pass_time(500);
    kill(getpid(), SIGKILL);
}

int main(int count, char **arguments) {
    begin();
    if (count > 1) write_and_wait_for_death();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    haddr_t start = H5Dget_offset(dataset);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(run(arguments[0], "writer") == 128 + SIGKILL);
    CHECK(file_has_rows("file.h5", start, 0, 100, 1, 2));
    return 0;
}
