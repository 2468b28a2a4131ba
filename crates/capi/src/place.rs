//! Finds the final name and the permissions of new files that callers write themselves.

use std::ffi::{c_char, c_int};
use std::os::fd::IntoRawFd;

use penstock_engine::save::{ResolvedPath, clear_folder, take_rights};

use crate::arguments::{path_of, place_of, string_of};
use crate::error::guard;

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_place_find(
    path: *const c_char,
    folder: *mut c_int,
    name: *mut *mut c_char,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let (folder, name) = (place_of(folder, "folder")?, place_of(name, "name")?);
        let resolved = ResolvedPath::of(path_of(path, "path")?)?;
        clear_folder(&resolved);
        let (found, name_found) = resolved.into_parts();
        *name = name_found.into_raw();
        *folder = found.into_raw_fd();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_place_take_rights(
    made: c_int,
    folder: c_int,
    name: *const c_char,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe { take_rights(made, folder, string_of(name, "name")?) })
}
