#include "../check.h"

#include <penstock_hdf5.h>

static bool reports(hid_t file, const char *words) {
    char *json = NULL;
    CHECK(penstock_hdf5_file_report(file, &json) == PENSTOCK_OK);
    bool does = strstr(json, words) != NULL;
    penstock_string_free(json);
    return does;
}

int main(void) {
    begin();
    hid_t file = create_file("file.h5");
    put_values(file, "before", 3000000, 1);
    CHECK(reports(file, "\"mode\":\"auto\""));
    CHECK(penstock_hdf5_set_options(file, "mode=sec2;threads=3") == PENSTOCK_OK);
    CHECK(reports(file, "\"mode\":\"sec2\""));
    put_values(file, "after", 3000000, 2);
    CHECK(penstock_hdf5_set_options(file, NULL) == PENSTOCK_OK);
    CHECK(reports(file, "\"mode\":\"auto\""));
    CHECK(has_values(file, "after", 3000000, 2));

    CHECK(penstock_hdf5_set_options(file, "threads=none") == PENSTOCK_ERR_INVALID);
    penstock_error error = {.struct_size = sizeof error};
    CHECK(penstock_last_error(&error) == PENSTOCK_OK);
    CHECK(strstr(error.message, "threads") != NULL);
    OK(H5Fclose(file));
    CHECK(sec2_finds_values("file.h5", "before", 3000000, 1));
    CHECK(sec2_finds_values("file.h5", "after", 3000000, 2));

    file = open_by_sec2("file.h5", H5F_ACC_RDONLY);
    CHECK(penstock_hdf5_set_options(file, "threads=2") == PENSTOCK_ERR_INVALID);
    OK(H5Fclose(file));
    CHECK(penstock_hdf5_set_options(file, "threads=2") == PENSTOCK_ERR_INVALID);
    return 0;
}
