#include "objects.h"

int main(void) {
    begin();
    hid_t connector = H5VLget_connector_id_by_name("penstock_async");
    OK(connector);
    void *info = NULL;
    CHECK(H5VLconnector_str_to_info("threads=none", connector, &info) < 0);
    CHECK_ERROR_SAYS("threads");
    OK(H5Eclear2(H5E_DEFAULT));
    CHECK(H5VLconnector_str_to_info("under_vol=0;under_info={", connector, &info) < 0);
    CHECK_ERROR_SAYS("under_info");
    OK(H5Eclear2(H5E_DEFAULT));
    CHECK(H5VLconnector_str_to_info("under_vol=65000", connector, &info) < 0);
    CHECK_ERROR_SAYS("under_vol=65000");
    OK(H5Eclear2(H5E_DEFAULT));
    CHECK(H5VLconnector_str_to_info("under_vol=no_such_connector", connector, &info) < 0);
    CHECK_ERROR_SAYS("under_vol=no_such_connector");
    OK(H5Eclear2(H5E_DEFAULT));
    CHECK(H5VLconnector_str_to_info("colour=red", connector, &info) < 0);
    CHECK_ERROR_SAYS("colour");
    CHECK(info == NULL);
    OK(H5Eclear2(H5E_DEFAULT));
    OK(H5VLclose(connector));
    return 0;
}
