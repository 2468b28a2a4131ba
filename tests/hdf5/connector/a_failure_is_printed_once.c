#include "objects.h"

static herr_t open_nothing(hid_t group, const char *name, const H5L_info2_t *info, void *data) {
    (void)name, (void)info, (void)data;
    CHECK(H5Gopen2(group, "none", H5P_DEFAULT) < 0);
    return 0;
}

static int printed(const char *path) {
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    char line[4096];
    int stacks = 0;
    while (fgets(line, sizeof line, file)) stacks += strstr(line, "HDF5-DIAG") != NULL;
    fclose(file);
    return stacks;
}

/* As HDF5 does where a program has not turned it off: also in an application's function. */
int main(void) {
    begin();
    hid_t file = make_file("file.h5"), group = make_group(file, "g");
    FILE *log = fopen("printed", "w");
    CHECK(log != NULL);
    OK(H5Eset_auto2(H5E_DEFAULT, (H5E_auto2_t)H5Eprint2, log));
    CHECK(H5Gopen2(file, "none", H5P_DEFAULT) < 0);
    CHECK(H5Fopen("none.h5", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
    OK(H5Literate2(file, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, open_nothing, NULL));
    OK(H5Eset_auto2(H5E_DEFAULT, NULL, NULL));
    fclose(log);
    CHECK(printed("printed") == 3);
    OK(H5Gclose(group));
    OK(H5Fclose(file));
    return 0;
}
