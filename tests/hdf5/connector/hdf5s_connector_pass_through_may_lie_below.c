#include "objects.h"

enum { MANY = 1 << 17 };

/* HDF5 1.14 registers its connector when a program names it by its identifier, which none here does. */
int main(void) {
    const char *const natives[] = {
        "penstock_async under_vol=pass_through;under_info={under_vol=0;under_info={}}",
        "penstock_async under_vol=1;under_info={under_vol=0;under_info={}};threads=2",
        "penstock_async under_vol=pass_through;under_info={under_vol=1;under_info={under_vol=0;under_info={}}}",
        "penstock_async under_vol=pass_through;under_info={under_vol=27022;under_info={under_vol=0;under_info={}}}",
        "pass_through under_vol=27022;under_info={under_vol=1;under_info={under_vol=0;under_info={}}}",
    };
    int *these = values(MANY, 1);
    for (size_t i = 0; i < sizeof natives / sizeof *natives; i++) {
        CHECK(setenv("HDF5_VOL_CONNECTOR", natives[i], 1) == 0);
        begin();
        char name[64] = "";
        const size_t length = strcspn(natives[i], " ");
        hid_t file = make_file("file.h5");
        OK(H5VLget_connector_name(file, name, sizeof name));
        CHECK(strlen(name) == length && strncmp(name, natives[i], length) == 0);

        hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
        OK(write_whole(dataset, these));
        OK(H5Dclose(dataset));
        if (i < 4) {
            size_t left = 1;
            hbool_t failed = true;
            hid_t events = H5EScreate(), later = create_dataset(file, "y", MANY, H5P_DEFAULT);
            OK(H5Dwrite_async(later, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, these, events));
            OK(H5Dclose_async(later, events));
            OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
            CHECK(left == 0 && !failed);
            OK(H5ESclose(events));
            CHECK(has_values(file, "y", MANY, 1));
        }
        CHECK(has_values(file, "x", MANY, 1));
        OK(H5Fclose(file));
        OK(H5close());
    }
    free(these);
    return 0;
}
