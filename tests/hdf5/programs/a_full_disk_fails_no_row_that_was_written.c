#include "../rows.h"

#include <signal.h>
#include <sys/resource.h>

/* The limit of a file's size replaces that of the disk. */
int main(void) {
    begin();
    hid_t file = create_file("file.h5"), dataset = create_rows(file, "x");
    haddr_t start = H5Dget_offset(dataset);
    OK(H5Fflush(file, H5F_SCOPE_LOCAL));
    struct rlimit limit = {start + 1000 * ROW * sizeof(int), RLIM_INFINITY};
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    bool is_told = false;
    for (size_t row = 0; row < ROWS; row++) is_told = write_row(dataset, row, 1) < 0 || is_told;
    is_told = H5Fflush(file, H5F_SCOPE_LOCAL) < 0 || is_told;
    CHECK(is_told);
    CHECK_ERROR_SAYS("errno = 27");
    limit.rlim_cur = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    write_rows(dataset, 0, ROWS, 1, 1);
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "x", VALUES, 1));
    return 0;
}
