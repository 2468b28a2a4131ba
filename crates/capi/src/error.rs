//! Status codes and the details of each thread's last failure.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_engine::error::{Error, Kind, Result};

use crate::arguments::c_string;
use crate::structs::{check_size, fill};

pub(crate) const OK: c_int = 0;
pub(crate) const PENDING: c_int = 1;
/// Status of a pending step; no number of `Kind` equals it.
pub(crate) const TURN: c_int = 14;

#[repr(C)]
pub(crate) struct CError {
    struct_size: usize,
    status: i32,
    os_errno: i32,
    gpu_code: i32,
    reserved: i32,
    offset: u64,
    length: u64,
    path: *const c_char,
    cause: *const c_char,
    remedy: *const c_char,
    message: *const c_char,
}

/// A thread's last failure, with its path, cause, remedy and message as C strings.
#[derive(Default)]
struct Last {
    error: Option<Error>,
    texts: [CString; 4],
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Runs the body of a C function. Errors and panics become a status, and their details are stored.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> c_int {
    guard_status(|| body().map(|()| OK))
}

/// As [`guard`], for a function that can succeed with several statuses.
pub(crate) fn guard_status(body: impl FnOnce() -> Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => store(error),
        Err(panic) => store(Error::panicked(&*panic)),
    }
}

fn store(error: Error) -> c_int {
    let status = error.kind() as c_int;
    // A thread that is exiting may have no thread-local storage left; the status is still returned.
    let _ = LAST.try_with(|last| {
        let path = error.path().map(|path| path.display().to_string());
        let texts = [
            c_string(&path.unwrap_or_default()),
            c_string(error.cause()),
            c_string(error.remedy_text()),
            c_string(&error.to_string()),
        ];
        *last.borrow_mut() = Last {
            error: Some(error),
            texts,
        };
    });
    status
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_last_error(error: *mut CError) -> c_int {
    // SAFETY: by contract of this function.
    if error.is_null() || unsafe { check_size(error.cast(), "error") }.is_err() {
        return Kind::Invalid as c_int;
    }
    let filled = LAST.try_with(|last| {
        let last = last.borrow();
        let [path, cause, remedy, message] = last.texts.each_ref().map(|text| text.as_ptr());
        let number = |of: fn(&Error) -> i32| last.error.as_ref().map_or(0, of);
        let position = |of: fn(&Error) -> u64| last.error.as_ref().map_or(0, of);
        let filled = CError {
            struct_size: size_of::<CError>(),
            status: number(|error| error.kind() as i32),
            os_errno: number(Error::os_errno),
            gpu_code: number(Error::gpu_code),
            reserved: 0,
            offset: position(Error::offset),
            length: position(Error::length),
            path,
            cause,
            remedy,
            message,
        };
        // SAFETY: by contract, the struct has `struct_size` bytes, and the size was checked.
        unsafe { fill(error, filled) };
        OK
    });
    filled.unwrap_or(Kind::Internal as c_int)
}
