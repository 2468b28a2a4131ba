//! Requests of asynchronous operations, and wrapped requests of the connector below.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{ErrorPlace, herr_t, hid_t};

use super::api_call::ApiCall;
use super::callback::attempt;
use super::calling_library::{CallingLibrary, Quiet};
use super::operation::{AsyncOperation, Outcome};
use super::report_order::ReportOrder;
use super::under::Under;
use super::visit::is_in_call;
use super::wrapped::Wrapped;
use penstock_hdf5::library::callback::{SUCCEED, c_text};

/// `H5ES_WAIT_FOREVER`.
const FOREVER: u64 = u64::MAX;

/// Handles a request of this connector with `own`, any other with `call`.
///
/// # Safety
/// HDF5 passes a request of this connector.
unsafe fn handle(
    req: *mut c_void,
    own: impl FnOnce(&Arc<AsyncOperation>, &ReportOrder) -> Result<()>,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    unsafe {
        attempt(req, ApiCall::NONE, |under| {
            match Wrapped::of(req).own_request() {
                Some((operation, order)) => own(operation, order).map(|()| SUCCEED),
                None => Ok(call(under)),
            }
        })
    }
}

/// Calls [`handle`] with a function of the connector below.
macro_rules! dispatch {
    ($req:ident, $own:ident, $function:ident($($argument:ident),*)) => {
        // SAFETY: HDF5 passes a request of this connector; the call passes HDF5's arguments on.
        unsafe {
            handle($req, $own, |under| {
                (under.calls.$function)(under.object, under.id $(, $argument)*)
            })
        }
    };
}

unsafe extern "C" fn wait(
    req: *mut c_void,
    timeout: u64,
    status: *mut H5VL_request_status_t,
) -> herr_t {
    let limit = (timeout != FOREVER).then(|| Duration::from_nanos(timeout));
    let own = |operation: &Arc<AsyncOperation>, order: &ReportOrder| {
        // Inside a call, a wait without a limit may also leave an operation in progress.
        let ends_all = limit.is_none() && !is_in_call();
        let may_end = ends_all || order.may_report_end();
        let outcome = operation.wait(limit).filter(|_| may_end || is_first(req));
        if outcome.is_none() {
            order.reports_in_progress();
        }
        // SAFETY: HDF5 passes a pointer for the answer.
        unsafe { *status = outcome.map_or(H5VL_REQUEST_STATUS_IN_PROGRESS, Outcome::status) };
        Ok(())
    };
    dispatch!(req, own, H5VLrequest_wait(timeout, status))
}

/// Waits for all event sets when the library closes. HDF5 cannot free an event set with operations,
/// even ended ones, and would report "infinite loop closing library".
///
/// # Safety
/// The thread is inside a call of `library`.
pub(crate) unsafe fn wait_for_event_sets(library: CallingLibrary) {
    unsafe extern "C" fn add(set: hid_t, sets: *mut c_void) -> herr_t {
        // SAFETY: the call below passes this vector.
        unsafe { &mut *sets.cast::<Vec<hid_t>>() }.push(set);
        0
    }
    let mut sets: Vec<hid_t> = Vec::new();
    let _quiet = Quiet::begin(library);
    // SAFETY: the caller guarantees this; `add` gets a vector, and the pointers are valid for the answers.
    library.keeping_errors(|| unsafe {
        (library.calls.H5Iiterate)(H5I_EVENTSET, add, (&raw mut sets).cast());
        for set in sets {
            let (mut left, mut has_failed) = (0, true);
            // A failed operation ends the wait.
            while has_failed {
                has_failed = false;
                (library.calls.H5ESwait)(set, FOREVER, &mut left, &mut has_failed);
            }
        }
    });
}

/// Returns whether the request is the first of its event set, so that no earlier request of the set
/// is in progress. Returns false for a request that a connector above has wrapped.
fn is_first(req: *mut c_void) -> bool {
    const OLDEST_FIRST: c_int = 0;
    struct Search {
        library: CallingLibrary,
        request: *mut c_void,
        is_found: bool,
    }
    unsafe extern "C" fn look(set: hid_t, search: *mut c_void) -> herr_t {
        // SAFETY: the call below passes this struct.
        let search = unsafe { &mut *search.cast::<Search>() };
        let (mut first, mut count) = (ptr::null_mut(), 0);
        // SAFETY: the set is open, and `first` receives one request.
        let status = unsafe {
            let get = search.library.calls.H5ESget_requests;
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
    // SAFETY: HDF5 has passed a request of this connector.
    let library = unsafe { Wrapped::of(req) }.container().below.library;
    let mut search = Search {
        library,
        request: req,
        is_found: false,
    };
    library.keeping_errors(|| {
        // SAFETY: the thread is inside a call of this HDF5, and `look` gets a `Search`.
        unsafe { (library.calls.H5Iiterate)(H5I_EVENTSET, look, (&raw mut search).cast()) }
    });
    search.is_found
}

unsafe extern "C" fn notify(
    req: *mut c_void,
    cb: H5VL_request_notify_t,
    ctx: *mut c_void,
) -> herr_t {
    let own = |operation: &Arc<AsyncOperation>, _: &ReportOrder| {
        // SAFETY: HDF5 passes a function and its argument.
        unsafe { operation.notify(cb, ctx) };
        Ok(())
    };
    dispatch!(req, own, H5VLrequest_notify(cb, ctx))
}

unsafe extern "C" fn cancel(req: *mut c_void, status: *mut H5VL_request_status_t) -> herr_t {
    let own = |operation: &Arc<AsyncOperation>, order: &ReportOrder| {
        let may_end = order.may_report_end();
        let stays = |status| {
            status == H5VL_REQUEST_STATUS_IN_PROGRESS || status == H5VL_REQUEST_STATUS_CANT_CANCEL
        };
        let answer = match operation.cancel() {
            ended if !stays(ended) && !may_end && !is_first(req) => H5VL_REQUEST_STATUS_IN_PROGRESS,
            answer => answer,
        };
        if stays(answer) {
            order.reports_in_progress();
        }
        // SAFETY: HDF5 passes a pointer for the answer.
        unsafe { *status = answer };
        Ok(())
    };
    dispatch!(req, own, H5VLrequest_cancel(status))
}

unsafe extern "C" fn specific(req: *mut c_void, args: *mut H5VL_request_specific_args_t) -> herr_t {
    let own = |operation: &Arc<AsyncOperation>, _: &ReportOrder| {
        // SAFETY: HDF5 passes a request and the arguments of this operation, with pointers for the answers.
        unsafe {
            match (*args).op_type {
                H5VL_REQUEST_GET_ERR_STACK => {
                    let library = Wrapped::of(req).container().below.library;
                    (*args).args.err_stack_id = error_stack(library, operation);
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
    dispatch!(req, own, H5VLrequest_specific(args))
}

unsafe extern "C" fn optional(req: *mut c_void, args: *mut H5VL_optional_args_t) -> herr_t {
    // SAFETY: HDF5 passes the arguments.
    let own = |_: &Arc<AsyncOperation>, _: &ReportOrder| Err(unknown(unsafe { (*args).op_type }));
    dispatch!(req, own, H5VLrequest_optional(args))
}

/// Frees a request after waiting for its operation. Neither waiting nor cancelling frees it.
unsafe extern "C" fn free(req: *mut c_void) -> herr_t {
    let own = |operation: &Arc<AsyncOperation>, _: &ReportOrder| {
        operation.wait_if_possible();
        Ok(())
    };
    let status = dispatch!(req, own, H5VLrequest_free());
    if status >= 0 {
        // SAFETY: HDF5 releases the request.
        unsafe { Wrapped::release(req) };
    }
    status
}

fn unknown(operation: i32) -> Error {
    Error::invalid(format!("requests have no operation {operation}"))
}

/// Makes an error stack of the operation's failure, for the application. Returns -1 if the
/// operation has not failed.
fn error_stack(library: CallingLibrary, operation: &AsyncOperation) -> hid_t {
    let Some(Outcome::Failed(error)) = operation.outcome() else {
        return -1;
    };
    let text = c_text(&error.to_string());
    let place = ErrorPlace {
        file: c"penstock",
        function: operation.call,
        line: 0,
    };
    library.keeping_errors(|| {
        let (major, minor) = ("H5E_VOL_g", "H5E_CANTOPERATE_g");
        library.hdf5.push_error(&place, major, minor, &text);
        // SAFETY: the thread is inside a call of this HDF5.
        unsafe { (library.calls.H5Eget_current_stack)() }
    })
}

pub(crate) const CLASS: H5VL_request_class_t = H5VL_request_class_t {
    wait: Some(wait),
    notify: Some(notify),
    cancel: Some(cancel),
    specific: Some(specific),
    optional: Some(optional),
    free: Some(free),
};
