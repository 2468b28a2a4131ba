#include "objects.h"

#include <penstock_hdf5.h>

static bool has_the_connector(hid_t file) {
    char name[64];
    OK(H5VLget_connector_name(file, name, sizeof name));
    return strcmp(name, "penstock_async") == 0;
}

/* Without the environment, and before HDF5 has loaded a plugin. */
int main(void) {
    CHECK(unsetenv("HDF5_VOL_CONNECTOR") == 0 && unsetenv("HDF5_PLUGIN_PATH") == 0);
    begin();
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    CHECK(penstock_fapl_set_connector(fapl, "threads=2") == PENSTOCK_OK);
    hid_t file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    CHECK(has_the_connector(file));
    put_values(file, "x", 1000, 1);
    OK(H5Fclose(file));

    /* Once more changes the options, and puts no second connector above the first. */
    CHECK(penstock_fapl_set_connector(fapl, "threads=3") == PENSTOCK_OK);
    void *info = NULL;
    char *text = NULL;
    hid_t connector;
    OK(H5Pget_vol_id(fapl, &connector));
    OK(H5Pget_vol_info(fapl, &info));
    OK(H5VLconnector_info_to_str(info, connector, &text));
    CHECK(strcmp(text, "under_vol=0;under_info={};threads=3") == 0);
    OK(H5free_memory(text));
    OK(H5VLfree_connector_info(connector, info));
    OK(H5VLclose(connector));
    file = H5Fopen("file.h5", H5F_ACC_RDONLY, fapl);
    OK(file);
    CHECK(has_the_connector(file));
    CHECK(has_values(file, "x", 1000, 1));
    OK(H5Fclose(file));

    /* Other lists stay as they are. */
    file = H5Fopen("file.h5", H5F_ACC_RDONLY, H5P_DEFAULT);
    OK(file);
    CHECK(!has_the_connector(file));
    OK(H5Fclose(file));
    CHECK(penstock_fapl_set_connector(fapl, "colour=red") == PENSTOCK_ERR_INVALID);
    CHECK(penstock_fapl_set_connector(12345, NULL) != PENSTOCK_OK);
    OK(H5Pclose(fapl));
    return 0;
}
