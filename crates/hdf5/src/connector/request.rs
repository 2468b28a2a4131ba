//! Requests of the connector below, wrapped.

use std::ffi::c_void;
use std::sync::Arc;

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::herr_t;

use super::wrapped::{Container, Req, Wrapped, close, operate};

/// No request: an operation on a request has none of its own.
const NONE: Req = std::ptr::null_mut();

/// Wraps the request that the connector below has left, if it has.
///
/// # Safety
/// `req` is null or a place that holds null or a request of the connector below.
pub unsafe fn wrap(req: Req, container: &Arc<Container>) {
    // SAFETY: passed on.
    unsafe {
        if !req.is_null() && !(*req).is_null() {
            *req = Wrapped::wrap(*req, container);
        }
    }
}

unsafe extern "C" fn wait(
    req: *mut c_void,
    timeout: u64,
    status: *mut H5VL_request_status_t,
) -> herr_t {
    // SAFETY: HDF5 gives a request of this connector.
    unsafe {
        operate(req, NONE, |under| {
            (under.calls.H5VLrequest_wait)(under.object, under.id, timeout, status)
        })
    }
}

unsafe extern "C" fn notify(
    req: *mut c_void,
    cb: H5VL_request_notify_t,
    ctx: *mut c_void,
) -> herr_t {
    // SAFETY: HDF5 gives a request of this connector.
    unsafe {
        operate(req, NONE, |under| {
            (under.calls.H5VLrequest_notify)(under.object, under.id, cb, ctx)
        })
    }
}

unsafe extern "C" fn cancel(req: *mut c_void, status: *mut H5VL_request_status_t) -> herr_t {
    // SAFETY: HDF5 gives a request of this connector.
    unsafe {
        operate(req, NONE, |under| {
            (under.calls.H5VLrequest_cancel)(under.object, under.id, status)
        })
    }
}

unsafe extern "C" fn specific(req: *mut c_void, args: *mut H5VL_request_specific_args_t) -> herr_t {
    // SAFETY: HDF5 gives a request of this connector.
    unsafe {
        operate(req, NONE, |under| {
            (under.calls.H5VLrequest_specific)(under.object, under.id, args)
        })
    }
}

unsafe extern "C" fn optional(req: *mut c_void, args: *mut H5VL_optional_args_t) -> herr_t {
    // SAFETY: HDF5 gives a request of this connector.
    unsafe {
        operate(req, NONE, |under| {
            (under.calls.H5VLrequest_optional)(under.object, under.id, args)
        })
    }
}

/// The only end of a request: waiting for it, or cancelling it, does not free it.
unsafe extern "C" fn free(req: *mut c_void) -> herr_t {
    // SAFETY: HDF5 gives up a request of this connector.
    unsafe {
        close(req, NONE, |under| {
            (under.calls.H5VLrequest_free)(under.object, under.id)
        })
    }
}

/// For the tables of callbacks.
pub(super) const CLASS: H5VL_request_class_t = H5VL_request_class_t {
    wait: Some(wait),
    notify: Some(notify),
    cancel: Some(cancel),
    specific: Some(specific),
    optional: Some(optional),
    free: Some(free),
};
