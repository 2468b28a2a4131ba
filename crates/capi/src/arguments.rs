//! The caller's pointers. `name` is the name of an argument in the header.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use penstock_engine::error::{Error, Result};

/// Returns the error for an argument that must not be null.
pub(crate) fn null(name: &str) -> Error {
    Error::invalid(format!("the argument {name} is a null pointer"))
}

/// Returns the caller's variable for a result.
///
/// # Safety
/// `place` is null or valid for `'a`.
pub(crate) unsafe fn place_of<'a, T>(place: *mut T, name: &str) -> Result<&'a mut T> {
    // SAFETY: by contract of this function.
    unsafe { place.as_mut() }.ok_or_else(|| null(name))
}

/// Returns a string of the caller.
///
/// # Safety
/// `text` is null or a C string that is valid for `'a`.
pub(crate) unsafe fn string_of<'a>(text: *const c_char, name: &str) -> Result<&'a CStr> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: by contract of this function.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Returns a path of the caller.
///
/// # Safety
/// As for [`string_of`].
pub(crate) unsafe fn path_of<'a>(path: *const c_char, name: &str) -> Result<&'a Path> {
    // SAFETY: by contract of this function.
    let path = unsafe { string_of(path, name)? };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// Returns a list of the caller.
///
/// # Safety
/// `start` is null or points to `count` values that are valid for `'a`.
pub(crate) unsafe fn list<'a, T>(start: *const T, count: u64, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(null(name));
    }
    if count > isize::MAX as u64 / size_of::<T>().max(1) as u64 {
        return Err(Error::invalid(format!(
            "{count} {name} are more than memory can hold"
        )));
    }
    // SAFETY: by contract of this function.
    Ok(unsafe { std::slice::from_raw_parts(start, count as usize) })
}

/// As [`list`]; `None` for a null pointer.
///
/// # Safety
/// As for [`list`].
pub(crate) unsafe fn optional_list<'a, T>(
    start: *const T,
    count: u64,
    name: &str,
) -> Result<Option<&'a [T]>> {
    // SAFETY: by contract of this function.
    (!start.is_null())
        .then(|| unsafe { list(start, count, name) })
        .transpose()
}

/// Returns a text as a C string, without inner NUL characters.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}
