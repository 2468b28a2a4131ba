#include "failing_filter.h"

/* As by HDF5 alone: the call fails, the identifier is gone, and the file can be flushed and closed. */
int main(void) {
    begin_with("");
    hid_t events = new_events(), file = make_file("file.h5");
    for (int round = 0; round < 4; round++) {
        hid_t dataset = dataset_that_fails(file, (const char[]){(char)('a' + round), 0});
        if (round == 0) CHECK(H5Dclose_async(dataset, events) < 0);
        else if (round == 1) CHECK(H5Dclose_async(dataset, H5ES_NONE) < 0);
        else CHECK(H5Dclose(dataset) < 0);
        CHECK_ERROR_SAYS("filter");
        OK(H5Eclear2(H5E_DEFAULT));
        CHECK(H5Iis_valid(dataset) == 0);
        CHECK(H5Fget_obj_count(file, H5F_OBJ_ALL) == 1);
        if (round < 3) OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    }
    OK(H5Fclose(file));
    close_events(events);
    CHECK(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);
    file = look_at_file("file.h5");
    OK(H5Fclose(file));
    return 0;
}
