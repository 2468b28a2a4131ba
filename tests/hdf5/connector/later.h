/* A connector below Penstock's whose operations continue after its calls. */
#ifndef LATER_H
#define LATER_H

#include "objects.h"

#include <penstock_hdf5.h>

/* The native one, but for writes with an event set, which it makes when it is waited for. */
static const H5VL_class_t *native;
static int freed;

typedef struct {
    void *dataset;
    hid_t type, memory, file;
    const void *from;
    H5VL_request_status_t status;
    H5VL_request_notify_t notify;
    void *context;
} later_t;

static inline herr_t later_write(size_t count, void *dataset[], hid_t type[], hid_t memory[], hid_t file[],
                          hid_t dxpl, const void *from[], void **request) {
    if (request == NULL)
        return native->dataset_cls.write(count, dataset, type, memory, file, dxpl, from, NULL);
    later_t *later = allocate(sizeof *later);
    *later = (later_t){dataset[0], type[0], memory[0], file[0], from[0], H5VL_REQUEST_STATUS_IN_PROGRESS, NULL, NULL};
    *request = later;
    return 0;
}

static inline herr_t later_wait(void *request, uint64_t timeout, H5VL_request_status_t *status) {
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

static inline herr_t later_notify(void *request, H5VL_request_notify_t notify, void *context) {
    ((later_t *)request)->notify = notify;
    ((later_t *)request)->context = context;
    return 0;
}

static inline herr_t later_cancel(void *request, H5VL_request_status_t *status) {
    *status = ((later_t *)request)->status = H5VL_REQUEST_STATUS_CANCELED;
    return 0;
}

static inline herr_t later_specific(void *request, H5VL_request_specific_args_t *args) {
    (void)request;
    if (args->op_type == H5VL_REQUEST_GET_ERR_STACK)
        args->args.get_err_stack.err_stack_id = H5Ecreate_stack();
    else
        *args->args.get_exec_time.exec_ts = *args->args.get_exec_time.exec_time = 5;
    return 0;
}

static inline herr_t later_free(void *request) {
    freed++;
    free(request);
    return 0;
}

/* Registers it, to be closed by H5VLclose. */
static inline hid_t register_later(void) {
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
    return connector;
}

/* A file with Penstock's connector above it. */
static inline hid_t make_file_above(hid_t connector, const char *path) {
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    OK(H5Pset_vol(fapl, connector, NULL));
    CHECK(penstock_fapl_set_connector(fapl, NULL) == PENSTOCK_OK);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl);
    OK(file);
    OK(H5Pclose(fapl));
    return file;
}

#endif
