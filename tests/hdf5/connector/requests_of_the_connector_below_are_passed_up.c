#include "later.h"

static int notified;

static int noticed(const H5ES_op_info_t *operation, H5ES_status_t status, hid_t stack, void *data) {
    (void)operation, (void)stack, (void)data;
    notified += status == H5ES_STATUS_SUCCEED;
    return 0;
}

int main(void) {
    CHECK(unsetenv("HDF5_VOL_CONNECTOR") == 0);
    begin();
    hid_t connector = register_later(), file = make_file_above(connector, "file.h5");
    hid_t events = H5EScreate();
    hid_t dataset = create_dataset(file, "x", 100, H5P_DEFAULT);
    int *one = values(100, 1), *two = values(100, 2);
    OK(H5ESregister_complete_func(events, noticed, NULL));
    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, one, events));

    /* A poll ends nothing; a wait does, and only then is the request freed. */
    size_t left = 0, count = 0;
    hbool_t failed = true;
    OK(H5ESwait(events, 0, &left, &failed));
    CHECK(left == 1 && !failed && freed == 0);
    CHECK(!has_values(file, "x", 100, 1));
    OK(H5ESwait(events, H5ES_WAIT_FOREVER, &left, &failed));
    CHECK(left == 0 && !failed && freed == 1 && notified == 1);
    CHECK(has_values(file, "x", 100, 1));

    OK(H5Dwrite_async(dataset, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, two, events));
    size_t not_canceled = 1;
    OK(H5EScancel(events, &not_canceled, &failed));
    CHECK(not_canceled == 0 && freed == 2);
    OK(H5ESget_count(events, &count));
    CHECK(count == 0);
    CHECK(has_values(file, "x", 100, 1));

    OK(H5ESclose(events));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5VLclose(connector));
    free(one);
    free(two);
    return 0;
}
