#include "objects.h"

/* Without the connector, HDF5 tries all that it finds when a file cannot be opened. */
int main(int count, char **words) {
    begin();
    CHECK(H5Fopen("none.h5", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
    CHECK_ERROR_SAYS("errno = 2");
    if (count > 1) return 0;
    CHECK(unsetenv("HDF5_VOL_CONNECTOR") == 0);
    CHECK(run(words[0], "without the connector") == 0);
    return 0;
}
