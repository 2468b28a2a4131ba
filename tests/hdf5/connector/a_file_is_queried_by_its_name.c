#include "objects.h"

int main(void) {
    begin();
    OK(H5Fclose(make_file("file.h5")));
    CHECK(H5Fis_accessible("file.h5", H5P_DEFAULT) > 0);
    FILE *other = fopen("other.h5", "w");
    CHECK(other != NULL && fputs("no HDF5", other) >= 0 && fclose(other) == 0);
    CHECK(H5Fis_accessible("other.h5", H5P_DEFAULT) == 0);
    OK(H5Fdelete("file.h5", H5P_DEFAULT));
    CHECK(access("file.h5", F_OK) != 0);
    CHECK(H5Fdelete("file.h5", H5P_DEFAULT) < 0);
    return 0;
}
