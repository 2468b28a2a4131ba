#include "objects.h"

static bool is_named(hid_t object, const char *name) {
    char found[64];
    OK(H5VLget_connector_name(object, found, sizeof found));
    return strcmp(found, name) == 0;
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5");
    CHECK(is_named(file, "penstock_async"));
    hid_t group = make_group(file, "g");
    CHECK(is_named(group, "penstock_async"));

    /* At the bottom is what HDF5's own functions for native files need. */
    bool is_native = false;
    OK(H5VLobject_is_native(group, &is_native));
    CHECK(is_native);

    /* The list with which the file could be opened once more. */
    hid_t fapl = H5Fget_access_plist(file), connector;
    OK(fapl);
    OK(H5Pget_vol_id(fapl, &connector));
    hid_t known = H5VLget_connector_id_by_name("penstock_async");
    OK(known);
    int order = 1;
    OK(H5VLcmp_connector_cls(&order, connector, known));
    CHECK(order == 0);
    uint64_t flags = 0;
    OK(H5Pget_vol_cap_flags(fapl, &flags));
    CHECK(flags & H5VL_CAP_FLAG_ASYNC);
    CHECK(flags & H5VL_CAP_FLAG_NATIVE_FILES);

    OK(H5VLclose(known));
    OK(H5VLclose(connector));
    OK(H5Pclose(fapl));
    OK(H5Gclose(group));
    OK(H5Fclose(file));
    return 0;
}
