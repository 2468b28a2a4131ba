//! Status codes and the details of each thread's last failure.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_engine::error::{Error, Kind, Result};

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

/// An error with C strings.
#[derive(Default)]
struct Last {
    status: i32,
    os_errno: i32,
    gpu_code: i32,
    offset: u64,
    length: u64,
    path: CString,
    cause: CString,
    remedy: CString,
    message: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

impl From<&Error> for Last {
    fn from(error: &Error) -> Last {
        Last {
            status: error.kind() as i32,
            os_errno: error.os_errno(),
            gpu_code: error.gpu_code(),
            offset: error.offset(),
            length: error.length(),
            path: c_string(&error.path().unwrap_or("".as_ref()).display().to_string()),
            cause: c_string(error.cause()),
            remedy: c_string(error.remedy_text()),
            message: c_string(&error.to_string()),
        }
    }
}

/// Returns the text as a C string, without inner NUL characters. Paths of the caller have none.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Runs the body of a C function. Errors and panics become a status, and their details are stored.
pub(crate) fn guard(body: impl FnOnce() -> Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => store(&error),
        Err(panic) => store(&Error::panicked(&*panic)),
    }
}

fn store(error: &Error) -> c_int {
    // A thread that is exiting may have no thread-local storage left; the status is still returned.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Last::from(error));
    error.kind() as c_int
}

/// Returns the error for an argument that must not be null.
pub(crate) fn null(name: &str) -> Error {
    Error::invalid(format!("the argument {name} is a null pointer"))
}

/// # Safety
/// `error` is null or points to a `penstock_error` of at least `struct_size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_last_error(error: *mut CError) -> c_int {
    // SAFETY: passed on.
    if error.is_null() || unsafe { check_size(error.cast(), "error") }.is_err() {
        return Kind::Invalid as c_int;
    }
    let filled = LAST.try_with(|last| {
        let last = last.borrow();
        let filled = CError {
            struct_size: size_of::<CError>(),
            status: last.status,
            os_errno: last.os_errno,
            gpu_code: last.gpu_code,
            reserved: 0,
            offset: last.offset,
            length: last.length,
            path: last.path.as_ptr(),
            cause: last.cause.as_ptr(),
            remedy: last.remedy.as_ptr(),
            message: last.message.as_ptr(),
        };
        // SAFETY: by contract, the struct has `struct_size` bytes, and the size was checked.
        unsafe { fill(error, filled) };
        OK
    });
    filled.unwrap_or(Kind::Internal as c_int)
}
