#include "objects.h"

/* HDF5 goes on with its native connector if it cannot use the text of the variable. */
int main(void) {
    const struct {
        const char *text, *why;
    } cases[] = {
        {"penstock_async under_vol=no_such_connector;under_info={}", "under_vol=no_such_connector"},
        {"penstock_async under_vol=65000;under_info={}", "under_vol=65000"},
        {"penstock_async under_vol=0;under_info={};colour=red", "colour"},
        {"penstock_async under_vol=0;under_info={", "under_info"},
        {"penstock_async log=\xff", "UTF-8"},
        /* HDF5's connector clears the reason. */
        {"pass_through under_vol=27022;under_info={under_vol=0;under_info={};copy=maybe}", ""},
    };
    CHECK(unsetenv("HDF5_VOL_CONNECTOR") == 0);
    begin();
    OK(H5Fclose(make_file("there.h5")));
    OK(H5close());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(setenv("HDF5_VOL_CONNECTOR", cases[i].text, 1) == 0);
        begin();
        CHECK(H5Fcreate("new.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT) < 0);
        CHECK(strstr(error_text(), cases[i].why) != NULL);
        CHECK(access("new.h5", F_OK) != 0);
        CHECK(H5Fopen("there.h5", H5F_ACC_RDONLY, H5P_DEFAULT) < 0);
        CHECK(strstr(error_text(), cases[i].why) != NULL);
        CHECK(H5Fdelete("there.h5", H5P_DEFAULT) < 0);
        CHECK(strstr(error_text(), cases[i].why) != NULL);
        hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), copy = H5Pcopy(fapl);
        CHECK(H5Pequal(fapl, copy) > 0);
        CHECK(H5Fopen("there.h5", H5F_ACC_RDONLY, copy) < 0);
        OK(H5Pclose(fapl));
        OK(H5Pclose(copy));
        OK(H5close());
    }
    return 0;
}
