#include "../check.h"

#include <penstock_hdf5.h>

enum { COUNT = 1000 };

static bool has_mode(hid_t file, const char *mode) {
    char *json = NULL, words[64];
    CHECK(penstock_hdf5_file_report(file, &json) == PENSTOCK_OK);
    snprintf(words, sizeof words, "\"mode\":\"%s\"", mode);
    bool has = strstr(json, words) != NULL;
    penstock_string_free(json);
    return has;
}

/* HDF5 opens these with the list that it makes of the open file, as programs do by
 * H5Fget_access_plist. */
int main(void) {
    begin();
    hid_t other = create_file("other.h5");
    put_values(other, "x", COUNT, 1);
    OK(H5Fclose(other));

    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_driver_by_name(fapl, "penstock", "mode=posix-mt"));
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    OK(H5Lcreate_external("other.h5", "/", file, "link", H5P_DEFAULT, H5P_DEFAULT));
    hid_t group = H5Gopen2(file, "link", H5P_DEFAULT), linked = H5Iget_file_id(group);
    OK(linked);
    CHECK(has_mode(linked, "posix-mt"));
    OK(H5Fclose(linked));
    OK(H5Gclose(group));

    CHECK(penstock_hdf5_set_options(file, "mode=sec2") == PENSTOCK_OK);
    hid_t made = H5Fget_access_plist(file), copy = H5Pcopy(made), again = H5Fget_access_plist(file);
    CHECK(H5Pequal(made, copy) > 0);
    CHECK(H5Pequal(made, again) > 0);
    CHECK(penstock_hdf5_set_options(file, "mode=direct") == PENSTOCK_OK);
    hid_t later = H5Fget_access_plist(file);
    CHECK(H5Pequal(made, later) == 0);
    OK(H5Pclose(made));
    OK(H5Pclose(later));
    OK(H5Pclose(again));
    other = H5Fopen("other.h5", H5F_ACC_RDONLY, copy);
    OK(other);
    CHECK(has_mode(other, "sec2"));
    OK(H5Fclose(other));

    /* A configuration that the list gets later is the one that counts. */
    OK(H5Pset_driver_by_name(copy, "penstock", "mode=direct"));
    other = H5Fopen("other.h5", H5F_ACC_RDONLY, copy);
    OK(other);
    CHECK(has_mode(other, "direct"));
    OK(H5Fclose(other));
    OK(H5Pclose(copy));
    OK(H5Fclose(file));
    OK(H5Pclose(fapl));
    return 0;
}
