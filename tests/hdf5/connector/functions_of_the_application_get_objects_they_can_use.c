#include "objects.h"

/* Each finds the dataset in what it is given. */
static herr_t by_link(hid_t group, const char *name, const H5L_info2_t *info, void *seen) {
    (void)info;
    if (strcmp(name, "x") == 0) *(int *)seen += has_values(group, name, 100, 1);
    return 0;
}

static herr_t by_object(hid_t object, const char *name, const H5O_info2_t *info, void *seen) {
    (void)info;
    if (strcmp(name, "x") == 0) *(int *)seen += has_values(object, name, 100, 1);
    return 0;
}

static herr_t by_attribute(hid_t object, const char *name, const H5A_info_t *info, void *seen) {
    (void)info;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    OK(attribute);
    int value = 0;
    OK(H5Aread(attribute, H5T_NATIVE_INT, &value));
    *(int *)seen += value;
    OK(H5Aclose(attribute));
    return 0;
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), scalar = H5Screate(H5S_SCALAR);
    put_values(file, "x", 100, 1);
    hid_t attribute =
        H5Acreate2(file, "a", H5T_NATIVE_INT, scalar, H5P_DEFAULT, H5P_DEFAULT);
    OK(attribute);
    OK(H5Awrite(attribute, H5T_NATIVE_INT, &(int){5}));
    OK(H5Aclose(attribute));

    int links = 0, objects = 0, attributes = 0;
    OK(H5Literate2(file, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, by_link, &links));
    OK(H5Lvisit2(file, H5_INDEX_NAME, H5_ITER_NATIVE, by_link, &links));
    OK(H5Ovisit3(file, H5_INDEX_NAME, H5_ITER_NATIVE, by_object, &objects, H5O_INFO_BASIC));
    OK(H5Aiterate2(file, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, by_attribute, &attributes));
    CHECK(links == 2 && objects == 1 && attributes == 5);
    OK(H5Sclose(scalar));
    OK(H5Fclose(file));
    return 0;
}
