//! Requests: of operations in the background, or of the connector below, wrapped.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use std::time::Duration;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{ErrorPlace, herr_t, hid_t};

use super::background::{Operation, Outcome};
use super::host::{Host, Quiet};
use super::reported::Place;
use super::wrapped::{Ask, Container, Under, Wrapped, attempt};
use penstock_hdf5::library::callback::{SUCCEED, c_text};

/// `H5ES_WAIT_FOREVER`.
const FOREVER: u64 = u64::MAX;

/// Wraps the request that the connector below has left; false if it has left none.
///
/// # Safety
/// `req` is null or a place that holds null or a request of the connector below.
pub unsafe fn wrap(req: Req, container: &Arc<Container>) -> bool {
    // SAFETY: passed on.
    unsafe {
        let is_left = !req.is_null() && !(*req).is_null();
        if is_left {
            *req = Wrapped::wrap(*req, container);
        }
        is_left
    }
}

/// A request of this connector, or else of the one below.
///
/// # Safety
/// HDF5 gives a request of this connector.
unsafe fn of(
    req: *mut c_void,
    own: impl FnOnce(&Arc<Operation>, &Place) -> Result<()>,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: passed on.
    unsafe {
        attempt(req, Ask::NONE, |under| {
            match Wrapped::of(req).own_request() {
                Some((operation, place)) => own(operation, place).map(|()| SUCCEED),
                None => Ok(call(under)),
            }
        })
    }
}

unsafe extern "C" fn wait(
    req: *mut c_void,
    timeout: u64,
    status: *mut H5VL_request_status_t,
) -> herr_t {
    let limit = (timeout != FOREVER).then(|| Duration::from_nanos(timeout));
    let own = |operation: &Arc<Operation>, place: &Place| {
        let may_end = limit.is_none() || place.may_end();
        let outcome = operation.wait(limit).filter(|_| may_end || is_first(req));
        if outcome.is_none() {
            place.goes_on();
        }
        // SAFETY: HDF5 gives a place for the answer.
        unsafe { *status = outcome.map_or(H5VL_REQUEST_STATUS_IN_PROGRESS, Outcome::status) };
        Ok(())
    };
    // SAFETY: HDF5 gives a request of this connector.
    unsafe {
        of(req, own, |under| {
            (under.calls.H5VLrequest_wait)(under.object, under.id, timeout, status)
        })
    }
}

/// Waits for all event sets when the library closes. HDF5 cannot free one that has operations, even
/// ended ones: it would say that it does not come to an end ("infinite loop closing library").
///
/// # Safety
/// The thread is inside a call of `host`.
pub unsafe fn empty_event_sets(host: Host) {
    unsafe extern "C" fn add(set: hid_t, sets: *mut c_void) -> herr_t {
        // SAFETY: this is what is given below.
        unsafe { &mut *sets.cast::<Vec<hid_t>>() }.push(set);
        0
    }
    let mut sets: Vec<hid_t> = Vec::new();
    let _quiet = Quiet::begin(host);
    // SAFETY: passed on; `add` gets what it expects, and there are places for the answers.
    host.keeping_errors(|| unsafe {
        (host.calls.H5Iiterate)(H5I_EVENTSET, add, (&raw mut sets).cast());
        for set in sets {
            let (mut left, mut has_failed) = (0, true);
            // Each failed operation ends the wait.
            while has_failed {
                has_failed = false;
                (host.calls.H5ESwait)(set, FOREVER, &mut left, &mut has_failed);
            }
        }
    });
}

/// Whether an event set has the request before all others, so that it waits for those of other sets
/// only. False for one that the connector above has wrapped.
fn is_first(req: *mut c_void) -> bool {
    const OLDEST_FIRST: c_int = 0;
    struct Search {
        host: Host,
        request: *mut c_void,
        is_found: bool,
    }
    unsafe extern "C" fn look(set: hid_t, search: *mut c_void) -> herr_t {
        // SAFETY: this is what is given below.
        let search = unsafe { &mut *search.cast::<Search>() };
        let (mut first, mut count) = (ptr::null_mut(), 0);
        // SAFETY: the set is open, and there is room for one request.
        let status = unsafe {
            let get = search.host.calls.H5ESget_requests;
            get(
                set,
                OLDEST_FIRST,
                ptr::null_mut(),
                &mut first,
                1,
                &mut count,
            )
        };
        search.is_found = status >= 0 && count > 0 && first == search.request;
        herr_t::from(search.is_found)
    }
    // SAFETY: HDF5 has given a request of this connector.
    let host = unsafe { Wrapped::of(req) }.container().below.host;
    let mut search = Search {
        host,
        request: req,
        is_found: false,
    };
    host.keeping_errors(|| {
        // SAFETY: the thread is inside a call of this HDF5; `look` gets what it expects.
        unsafe { (host.calls.H5Iiterate)(H5I_EVENTSET, look, (&raw mut search).cast()) }
    });
    search.is_found
}

unsafe extern "C" fn notify(
    req: *mut c_void,
    cb: H5VL_request_notify_t,
    ctx: *mut c_void,
) -> herr_t {
    let own = |operation: &Arc<Operation>, _: &Place| {
        // SAFETY: HDF5 gives a function that may be called with this context.
        unsafe { operation.notify(cb, ctx) };
        Ok(())
    };
    // SAFETY: HDF5 gives a request of this connector.
    unsafe {
        of(req, own, |under| {
            (under.calls.H5VLrequest_notify)(under.object, under.id, cb, ctx)
        })
    }
}

unsafe extern "C" fn cancel(req: *mut c_void, status: *mut H5VL_request_status_t) -> herr_t {
    let own = |operation: &Arc<Operation>, place: &Place| {
        let may_end = place.may_end();
        let stays = |status| {
            status == H5VL_REQUEST_STATUS_IN_PROGRESS || status == H5VL_REQUEST_STATUS_CANT_CANCEL
        };
        let answer = match operation.cancel() {
            ended if !stays(ended) && !may_end && !is_first(req) => H5VL_REQUEST_STATUS_IN_PROGRESS,
            answer => answer,
        };
        if stays(answer) {
            place.goes_on();
        }
        // SAFETY: HDF5 gives a place for the answer.
        unsafe { *status = answer };
        Ok(())
    };
    // SAFETY: HDF5 gives a request of this connector.
    unsafe {
        of(req, own, |under| {
            (under.calls.H5VLrequest_cancel)(under.object, under.id, status)
        })
    }
}

unsafe extern "C" fn specific(req: *mut c_void, args: *mut H5VL_request_specific_args_t) -> herr_t {
    let own = |operation: &Arc<Operation>, _: &Place| {
        // SAFETY: HDF5 gives a request, and the arguments of this operation on it, with places for the
        // answers.
        unsafe {
            match (*args).op_type {
                H5VL_REQUEST_GET_ERR_STACK => {
                    let host = Wrapped::of(req).container().below.host;
                    (*args).args.err_stack_id = error_stack(host, operation);
                    Ok(())
                }
                H5VL_REQUEST_GET_EXEC_TIME => {
                    let places = (*args).args.get_exec_time;
                    let (began, took) = operation.times();
                    for (place, value) in [(places.exec_ts, began), (places.exec_time, took)] {
                        if !place.is_null() {
                            *place = value;
                        }
                    }
                    Ok(())
                }
                other => Err(unknown(other)),
            }
        }
    };
    // SAFETY: HDF5 gives a request of this connector.
    unsafe {
        of(req, own, |under| {
            (under.calls.H5VLrequest_specific)(under.object, under.id, args)
        })
    }
}

unsafe extern "C" fn optional(req: *mut c_void, args: *mut H5VL_optional_args_t) -> herr_t {
    // SAFETY: HDF5 gives the arguments.
    let own = |_: &Arc<Operation>, _: &Place| Err(unknown(unsafe { (*args).op_type }));
    // SAFETY: HDF5 gives a request of this connector.
    unsafe {
        of(req, own, |under| {
            (under.calls.H5VLrequest_optional)(under.object, under.id, args)
        })
    }
}

/// The only end of a request: waiting for it, or cancelling it, does not free it. One that is not
/// finished is waited for.
unsafe extern "C" fn free(req: *mut c_void) -> herr_t {
    let own = |operation: &Arc<Operation>, _: &Place| {
        operation.settle();
        Ok(())
    };
    // SAFETY: HDF5 gives up a request of this connector.
    unsafe {
        let status = of(req, own, |under| {
            (under.calls.H5VLrequest_free)(under.object, under.id)
        });
        if status >= 0 {
            Wrapped::release(req);
        }
        status
    }
}

fn unknown(operation: i32) -> Error {
    Error::invalid(format!("requests have no operation {operation}"))
}

/// A stack with what went wrong, which HDF5 gives to the application; none if nothing did.
fn error_stack(host: Host, operation: &Operation) -> hid_t {
    let Some(Outcome::Failed(error)) = operation.outcome() else {
        return -1;
    };
    let text = c_text(&error.to_string());
    let place = ErrorPlace {
        file: c"penstock",
        function: operation.call,
        line: 0,
    };
    host.keeping_errors(|| {
        let (major, minor) = ("H5E_VOL_g", "H5E_CANTOPERATE_g");
        host.hdf5.push_error(&place, major, minor, &text);
        // SAFETY: the thread is inside a call of this HDF5.
        unsafe { (host.calls.H5Eget_current_stack)() }
    })
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
