#include "events.h"

#include <H5ESdevelop.h>
#include <H5VLconnector.h>
#include <H5VLconnector_passthru.h>

static int notified;

static herr_t note(void *context, H5VL_request_status_t status) {
    CHECK(context == &notified);
    CHECK(status == H5VL_REQUEST_STATUS_SUCCEED);
    notified++;
    return 0;
}

int main(void) {
    begin();
    hid_t file = make_file("file.h5"), events = new_events();
    hid_t dataset = create_dataset(file, "x", MANY, H5P_DEFAULT);
    int *these = values(MANY, 1);
    write_and_hold(dataset, these, events);
    void *request = NULL;
    hid_t connector = H5I_INVALID_HID;
    size_t count = 0;
    OK(H5ESget_requests(events, H5_ITER_NATIVE, &connector, &request, 1, &count));
    CHECK(count == 1 && request != NULL);

    H5VL_request_status_t status;
    OK(H5VLrequest_wait(request, connector, 0, &status));
    CHECK(status == H5VL_REQUEST_STATUS_IN_PROGRESS);
    OK(H5VLrequest_notify(request, connector, note, &notified));
    CHECK(notified == 0);
    release_held();
    OK(H5VLrequest_wait(request, connector, H5ES_WAIT_FOREVER, &status));
    CHECK(status == H5VL_REQUEST_STATUS_SUCCEED);
    CHECK(notified == 1);
    /* Also of one that has ended. */
    OK(H5VLrequest_notify(request, connector, note, &notified));
    CHECK(notified == 2);
    OK(H5VLrequest_cancel(request, connector, &status));
    CHECK(status == H5VL_REQUEST_STATUS_SUCCEED || status == H5VL_REQUEST_STATUS_CANT_CANCEL);

    uint64_t began = 0, took = 0;
    H5VL_request_specific_args_t args = {.op_type = H5VL_REQUEST_GET_EXEC_TIME};
    args.args.get_exec_time.exec_ts = &began;
    args.args.get_exec_time.exec_time = &took;
    OK(H5VLrequest_specific(request, connector, &args));
    CHECK(began > 0 && took > 0);

    /* It is still the event set's to free. */
    close_events(events);
    CHECK(has_values(file, "x", MANY, 1));
    OK(H5Dclose(dataset));
    OK(H5Fclose(file));
    free(these);
    return 0;
}
