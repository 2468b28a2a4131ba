#include "objects.h"

#include <penstock_hdf5.h>

/* A connector of this program: the native one, but for writes with an event set, which it makes when
 * it is waited for. */
static const H5VL_class_t *native;
static int freed, notified;

typedef struct {
    void *dataset;
    hid_t type, memory, file;
    const void *from;
    H5VL_request_status_t status;
    H5VL_request_notify_t notify;
    void *context;
} later_t;

static herr_t later_write(size_t count, void *dataset[], hid_t type[], hid_t memory[], hid_t file[],
                          hid_t dxpl, const void *from[], void **request) {
    if (request == NULL)
        return native->dataset_cls.write(count, dataset, type, memory, file, dxpl, from, NULL);
    later_t *later = allocate(sizeof *later);
    *later = (later_t){dataset[0], type[0], memory[0], file[0], from[0], H5VL_REQUEST_STATUS_IN_PROGRESS, NULL, NULL};
    *request = later;
    return 0;
}

static herr_t later_wait(void *request, uint64_t timeout, H5VL_request_status_t *status) {
    later_t *it = request;
    if (timeout > 0 && it->status == H5VL_REQUEST_STATUS_IN_PROGRESS) {
        bool done = native->dataset_cls.write(1, &it->dataset, &it->type, &it->memory, &it->file,
                                              H5P_DATASET_XFER_DEFAULT, &it->from, NULL) >= 0;
        it->status = done ? H5VL_REQUEST_STATUS_SUCCEED : H5VL_REQUEST_STATUS_FAIL;
        if (it->notify) OK(it->notify(it->context, it->status));
    }
    *status = it->status;
    return 0;
}

static herr_t later_notify(void *request, H5VL_request_notify_t notify, void *context) {
    ((later_t *)request)->notify = notify;
    ((later_t *)request)->context = context;
    return 0;
}

static herr_t later_cancel(void *request, H5VL_request_status_t *status) {
    *status = ((later_t *)request)->status = H5VL_REQUEST_STATUS_CANCELED;
    return 0;
}

static herr_t later_specific(void *request, H5VL_request_specific_args_t *args) {
    (void)request;
    if (args->op_type == H5VL_REQUEST_GET_ERR_STACK)
        args->args.get_err_stack.err_stack_id = H5Ecreate_stack();
    else
        *args->args.get_exec_time.exec_ts = *args->args.get_exec_time.exec_time = 5;
    return 0;
}

static herr_t later_free(void *request) {
    freed++;
    free(request);
    return 0;
}

static int noticed(const H5ES_op_info_t *operation, H5ES_status_t status, hid_t stack, void *data) {
    (void)operation, (void)stack, (void)data;
    notified += status == H5ES_STATUS_SUCCEED;
    return 0;
}

int main(void) {
    CHECK(unsetenv("HDF5_VOL_CONNECTOR") == 0);
    begin();
    hid_t file = make_file("native.h5");
    hid_t below = H5VLget_connector_id(file);
    OK(below);
    OK(H5VLintrospect_get_conn_cls(H5VLobject(file), below, H5VL_GET_CONN_LVL_CURR, &native));
    H5VL_class_t class = *native;
    class.name = "later";
    class.value = 30000;
    class.cap_flags |= H5VL_CAP_FLAG_ASYNC;
    class.dataset_cls.write = later_write;
    class.request_cls = (H5VL_request_class_t){later_wait,     later_notify, later_cancel,
                                               later_specific, NULL,         later_free};
    hid_t connector = H5VLregister_connector(&class, H5P_DEFAULT);
    OK(connector);
    OK(H5VLclose(below));
    OK(H5Fclose(file));

    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), events = H5EScreate();
    OK(H5Pset_vol(fapl, connector, NULL));
    CHECK(penstock_fapl_set_connector(fapl, NULL) == PENSTOCK_OK);
    file = H5Fcreate("file.h5", H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
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
    OK(H5Pclose(fapl));
    OK(H5VLclose(connector));
    free(one);
    free(two);
    return 0;
}
