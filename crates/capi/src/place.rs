//! Finds the final name and the permissions of new files that callers write themselves.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::IntoRawFd;

use penstock_engine::save::{ResolvedPath, take_rights};

use crate::error::{OK, guard, null};
use crate::file::path_of;

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_place_find(
    path: *const c_char,
    folder: *mut c_int,
    name: *mut *mut c_char,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        if folder.is_null() || name.is_null() {
            return Err(null("folder or name"));
        }
        let (found, its_name): (_, CString) = ResolvedPath::of(path_of(path)?)?.into_parts();
        *name = its_name.into_raw();
        *folder = found.into_raw_fd();
        Ok(OK)
    })
}

/// # Safety
/// As the header requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_place_take_rights(
    made: c_int,
    folder: c_int,
    name: *const c_char,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        if name.is_null() {
            return Err(null("name"));
        }
        take_rights(made, folder, CStr::from_ptr(name)).map(|()| OK)
    })
}
