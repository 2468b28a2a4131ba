#include "objects.h"

/* HDF5 closes the object below, and opens it again, during the refresh. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), group = make_group(file, "g");
    put_values(group, "x", 100, 1);
    hid_t dataset = H5Dopen2(group, "x", H5P_DEFAULT);
    OK(dataset);
    OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    OK(H5Drefresh(dataset));
    OK(H5Grefresh(group));
    OK(H5Orefresh(dataset));
    OK(H5Dflush(dataset));
    int *found = allocate(100 * sizeof(int));
    OK(read_whole(dataset, found));
    CHECK(found[7] == value_at(7, 1));
    CHECK(has_values(group, "x", 100, 1));
    free(found);
    OK(H5Dclose(dataset));
    OK(H5Gclose(group));
    OK(H5Fclose(file));
    return 0;
}
