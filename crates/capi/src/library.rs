//! Functions for the library as a whole.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use penstock_engine::{describe, drain, refuse_fork, trace};
use penstock_sys::add_library_folders;

use crate::error::{OK, guard, null};
use crate::file::path_of;

#[unsafe(no_mangle)]
extern "C" fn penstock_api_version() -> c_int {
    1
}

#[unsafe(no_mangle)]
extern "C" fn penstock_is_forked() -> c_int {
    refuse_fork().is_err().into()
}

/// # Safety
/// `folder` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_search_folder(folder: *const c_char) -> c_int {
    guard(|| {
        if folder.is_null() {
            return Err(null("folder"));
        }
        // SAFETY: the caller gives a C string.
        let folder = unsafe { CStr::from_ptr(folder) };
        add_library_folders(&[PathBuf::from(OsStr::from_bytes(folder.to_bytes()))]);
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// # Safety
/// `path` is null or a C string; `json` is null or valid for a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_describe(path: *const c_char, json: *mut *mut c_char) -> c_int {
    guard(|| {
        refuse_fork()?;
        if json.is_null() {
            return Err(null("json"));
        }
        let path: Option<&Path> = if path.is_null() {
            None
        } else {
            // SAFETY: the caller gives a C string.
            Some(unsafe { path_of(path)? })
        };
        let text = describe::describe(path).to_string();
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: by contract, the pointer is valid.
        unsafe { *json = text.into_raw() };
        Ok(OK)
    })
}

/// # Safety
/// `string` is null or a string from this library that was not freed.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: by contract, the string comes from `CString::into_raw`.
        drop(unsafe { CString::from_raw(string) });
    }
}

#[unsafe(no_mangle)]
extern "C" fn penstock_drain() -> c_int {
    guard(|| drain().map(|()| OK))
}

/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_trace_start(path: *const c_char) -> c_int {
    guard(|| {
        refuse_fork()?;
        // SAFETY: by contract of this function.
        trace::start(unsafe { path_of(path)? })?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_trace_stop() -> c_int {
    guard(|| {
        refuse_fork()?;
        trace::stop().map(|()| OK)
    })
}
