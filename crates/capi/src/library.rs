//! Functions for the library as a whole.

use std::ffi::{CStr, CString, c_char, c_int};

use penstock_engine::{describe, drain, refuse_fork, trace};
use penstock_sys::add_library_folders;

use crate::arguments::{path_of, place_of};
use crate::error::guard;

#[unsafe(no_mangle)]
extern "C" fn penstock_api_version() -> c_int {
    describe::API_VERSION
}

#[unsafe(no_mangle)]
extern "C" fn penstock_is_forked() -> c_int {
    refuse_fork().is_err().into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_search_folder(folder: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: by contract of this function.
        let folder = unsafe { path_of(folder, "folder")? };
        add_library_folders(&[folder.to_owned()]);
        Ok(())
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

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_describe(path: *const c_char, json: *mut *mut c_char) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        let place = place_of(json, "json")?;
        let path = (!path.is_null()).then(|| path_of(path, "path"));
        let text = describe::describe(path.transpose()?).to_string();
        *place = CString::new(text).unwrap_or_default().into_raw();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: by contract, the string comes from `CString::into_raw`.
        drop(unsafe { CString::from_raw(string) });
    }
}

#[unsafe(no_mangle)]
extern "C" fn penstock_drain() -> c_int {
    guard(drain)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_trace_start(path: *const c_char) -> c_int {
    guard(|| {
        refuse_fork()?;
        // SAFETY: by contract of this function.
        trace::start(unsafe { path_of(path, "path")? })
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_trace_stop() -> c_int {
    guard(|| {
        refuse_fork()?;
        trace::stop()
    })
}
