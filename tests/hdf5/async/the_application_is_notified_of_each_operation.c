#include "events.h"

static int inserted, succeeded, failed;

static int note_insertion(const H5ES_op_info_t *operation, void *data) {
    CHECK(data == &inserted);
    CHECK(strcmp(operation->api_name, "H5Dwrite_async") == 0);
    inserted++;
    return 0;
}

static int note_end(const H5ES_op_info_t *operation, H5ES_status_t status, hid_t stack,
                    void *data) {
    CHECK(data == &succeeded);
    CHECK(strcmp(operation->api_name, "H5Dwrite_async") == 0);
    CHECK(operation->op_exec_ts > 0);
    CHECK(status == H5ES_STATUS_SUCCEED || status == H5ES_STATUS_FAIL);
    if (status == H5ES_STATUS_FAIL) CHECK(H5Eget_num(stack) > 0);
    *(status == H5ES_STATUS_FAIL ? &failed : &succeeded) += 1;
    return 0;
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events(), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    OK(H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY));
    hid_t dataset = create_dataset(file, "x", MANY, dcpl);
    OK(H5ESregister_insert_func(events, note_insertion, &inserted));
    OK(H5ESregister_complete_func(events, note_end, &succeeded));
    int *these = values(MANY, 1);
    write_and_hold(dataset, these, events);
    CHECK(inserted == 1 && succeeded == 0);
    release_held();
    finish_all(events);
    CHECK(succeeded == 1 && failed == 0);

    fail_at((off_t)H5Dget_offset(dataset) + 5000, EIO);
    OK(write_later(dataset, these, events));
    CHECK_SAYS(failure_of(events, "H5Dwrite_async"), "Input/output error");
    CHECK(inserted == 2 && succeeded == 1 && failed == 1);
    fail_no_more();
    OK(H5ESclose(events));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    OK(H5Pclose(dcpl));
    free(these);
    return 0;
}
