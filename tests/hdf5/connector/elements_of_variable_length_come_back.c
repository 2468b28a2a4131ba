#include "objects.h"

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), text = H5Tcopy(H5T_C_S1);
    OK(H5Tset_size(text, H5T_VARIABLE));
    hsize_t count = 2;
    hid_t space = H5Screate_simple(1, &count, NULL);
    const char *from[2] = {"a text", "and a longer one"};
    char *to[2] = {NULL, NULL};
    hid_t dataset =
        H5Dcreate2(file, "text", text, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    OK(dataset);
    OK(H5Dwrite(dataset, text, H5S_ALL, H5S_ALL, H5P_DEFAULT, from));
    OK(H5Dread(dataset, text, H5S_ALL, H5S_ALL, H5P_DEFAULT, to));
    CHECK(strcmp(from[0], to[0]) == 0 && strcmp(from[1], to[1]) == 0);
    OK(H5Treclaim(text, space, H5P_DEFAULT, to));
    OK(H5Dclose(dataset));

    /* A type with a name, from the file that has it. */
    OK(H5Tcommit2(file, "type", text, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    hid_t named = H5Topen2(file, "type", H5P_DEFAULT);
    OK(named);
    CHECK(H5Tcommitted(named) > 0 && H5Tequal(named, text) > 0);
    OK(H5Tclose(named));
    OK(H5Tclose(text));
    OK(H5Sclose(space));
    OK(H5Fclose(file));
    return 0;
}
