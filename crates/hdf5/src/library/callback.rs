//! The edge to HDF5, for the functions that it calls: an error or a panic becomes an entry of the
//! calling thread's error stack. Nothing is printed, and nothing unwinds into C.

use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{ErrorPlace, Hdf5, herr_t};

/// What a function that HDF5 calls returns for success.
pub const SUCCEED: herr_t = 0;
/// What it returns for failure.
pub const FAIL: herr_t = -1;

/// Which function failed, and in which of HDF5's classes of errors.
#[derive(Clone, Copy)]
pub struct What {
    function: &'static CStr,
    major: &'static str,
    minor: &'static str,
}

/// A function, and the names of the identifiers of its major and minor error classes.
pub const fn what(function: &'static CStr, major: &'static str, minor: &'static str) -> What {
    What {
        function,
        major,
        minor,
    }
}

/// Runs the body of a function that HDF5 calls.
pub fn caught<T>(hdf5: &Hdf5, what: What, body: impl FnOnce() -> Result<T>) -> Option<T> {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(error)) => error,
        Err(panic) => Error::panicked(&*panic),
    };
    push(hdf5, what, &error);
    None
}

/// Puts an error on HDF5's error stack.
pub fn push(hdf5: &Hdf5, what: What, error: &Error) {
    // h5py reads the number out of these words to choose its exception.
    let text = match error.os_errno() {
        0 => error.to_string(),
        errno => format!("{error}, errno = {errno}"),
    };
    let place = ErrorPlace {
        file: c"penstock",
        function: what.function,
        line: 0,
    };
    hdf5.push_error(&place, what.major, what.minor, &c_text(&text));
}

/// What HDF5 takes for the outcome of [`caught`].
pub fn status(done: Option<()>) -> herr_t {
    done.map_or(FAIL, |()| SUCCEED)
}

/// A text for C; a NUL inside, which no text of ours has, is left out.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}
