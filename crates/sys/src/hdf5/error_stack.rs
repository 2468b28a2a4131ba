//! The error stack of HDF5's threads.

use std::ffi::{CStr, c_char, c_uint, c_void};

use super::{H5E_DEFAULT, LIBRARY, containing, herr_t, hid_t, identifier};
use crate::library::Library;

/// The position in the source code of an error.
pub struct ErrorPlace<'a> {
    pub file: &'a CStr,
    pub function: &'a CStr,
    pub line: u32,
}

/// As [`Hdf5::push_error`], on the stack of the copy that contains `code`, of any version since 1.10.
pub fn push_error_at(
    code: *const c_void,
    place: &ErrorPlace<'_>,
    major: &str,
    minor: &str,
    text: &CStr,
) {
    let object = containing(code);
    if let Ok(library) = object.and_then(|object| LIBRARY.open(Some(object.path.as_os_str()))) {
        push_error(&library, place, major, minor, text);
    }
}

/// As [`Hdf5::push_error`].
pub(super) fn push_error(
    library: &Library,
    place: &ErrorPlace<'_>,
    major: &str,
    minor: &str,
    text: &CStr,
) {
    type Push = unsafe extern "C" fn(
        err_stack: hid_t,
        file: *const c_char,
        func: *const c_char,
        line: c_uint,
        cls_id: hid_t,
        maj_id: hid_t,
        min_id: hid_t,
        msg: *const c_char,
        ...
    ) -> herr_t;
    let ids = ["H5E_ERR_CLS_g", major, minor].map(|name| identifier(library, name));
    let [Some(class), Some(major), Some(minor)] = ids else {
        return;
    };
    // SAFETY: the signature is that of H5Epublic.h.
    let Some(push): Option<Push> = (unsafe { library.optional(&["H5Epush2"]) }) else {
        return;
    };
    // SAFETY: all strings are C strings, which HDF5 copies; the format takes one string.
    unsafe {
        push(
            H5E_DEFAULT,
            place.file.as_ptr(),
            place.function.as_ptr(),
            place.line,
            class,
            major,
            minor,
            c"%s".as_ptr(),
            text.as_ptr(),
        );
    }
}
