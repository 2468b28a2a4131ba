//! Wraps functions that HDF5 calls: an error or a panic becomes an entry of the calling thread's
//! error stack. Nothing is printed, and nothing unwinds into C.

use std::ffi::{CStr, CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{ErrorPlace, Hdf5, herr_t, push_error_at};

/// Return value of a callback that succeeded.
pub const SUCCEED: herr_t = 0;
/// Return value of a callback that failed.
pub const FAIL: herr_t = -1;

/// The function that failed, and its major and minor error class in HDF5.
#[derive(Clone, Copy)]
pub struct ErrorSite {
    function: &'static CStr,
    major: &'static str,
    minor: &'static str,
}

/// Names a function and the identifiers of its major and minor error class.
pub const fn error_site(
    function: &'static CStr,
    major: &'static str,
    minor: &'static str,
) -> ErrorSite {
    ErrorSite {
        function,
        major,
        minor,
    }
}

/// Runs the body of a function that HDF5 calls. On failure returns `None`, with the error on HDF5's
/// stack.
pub fn run_callback<T>(
    hdf5: &Hdf5,
    site: ErrorSite,
    body: impl FnOnce() -> Result<T>,
) -> Option<T> {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(error)) => error,
        Err(panic) => Error::panicked(&*panic),
    };
    push(hdf5, site, &error);
    None
}

/// Pushes an error onto HDF5's error stack.
pub fn push(hdf5: &Hdf5, site: ErrorSite, error: &Error) {
    let place = place(site);
    hdf5.push_error(&place, site.major, site.minor, &entry(error));
}

/// As [`push`], for the HDF5 that contains `code`, the address of one of its instructions. Penstock
/// need not support that HDF5.
pub fn push_at(code: *const c_void, site: ErrorSite, error: &Error) {
    let place = place(site);
    push_error_at(code, &place, site.major, site.minor, &entry(error));
}

fn place(site: ErrorSite) -> ErrorPlace<'static> {
    ErrorPlace {
        file: c"penstock",
        function: site.function,
        line: 0,
    }
}

/// Returns the text of an entry of the error stack.
fn entry(error: &Error) -> CString {
    // h5py parses this number to choose its exception.
    match error.os_errno() {
        0 => c_text(&error.to_string()),
        errno => c_text(&format!("{error}, errno = {errno}")),
    }
}

/// Converts the outcome of [`run_callback`] to HDF5's return value.
pub fn status(done: Option<()>) -> herr_t {
    done.map_or(FAIL, |()| SUCCEED)
}

/// Converts a text for C, dropping NULs.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}
