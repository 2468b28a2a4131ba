#include "../check.h"

int main(void) {
    begin();
    FILE *stream = fopen("text", "w");
    CHECK(stream != NULL && fputs("not HDF5", stream) >= 0 && fclose(stream) == 0);
    CHECK(H5Fis_accessible("text", H5P_DEFAULT) == 0);
    CHECK(H5Fopen("text", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
    CHECK(size_of_file("text") == 8);
    return 0;
}
