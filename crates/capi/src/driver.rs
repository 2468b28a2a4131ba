//! The HDF5 file driver: the functions of `penstock_hdf5.h`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::{Hdf5, hid_t};
use penstock_vfd as driver;

use crate::arguments::place_of;
use crate::dataset::hdf5_of_process;
use crate::error::guard;

/// Returns the text of the options; empty for null.
///
/// # Safety
/// `options` is null or a C string that lives for `'a`.
pub(crate) unsafe fn text<'a>(options: *const c_char) -> Result<&'a str> {
    if options.is_null() {
        return Ok("");
    }
    // SAFETY: the caller gives a C string.
    let text = unsafe { CStr::from_ptr(options) };
    text.to_str()
        .map_err(|_| Error::invalid("the options are not valid UTF-8"))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_fapl_set(fapl_id: hid_t, options: *const c_char) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe { driver::set_on_access_list(hdf5_of_process()?, fapl_id, text(options)?) })
}

/// As [`penstock_fapl_set`], for a library that replaces that of another driver. Uses the HDF5
/// linked with the object that contains `code`, the address of an instruction of the caller.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_fapl_set_for(
    code: *const c_void,
    fapl_id: hid_t,
    options: *const c_char,
) -> c_int {
    // SAFETY: by contract of `penstock_fapl_set`.
    guard(|| unsafe {
        let hdf5 = Hdf5::of_caller(code).map_err(|absent| {
            Error::new(Kind::Unavailable, absent.to_string())
                .remedy("the caller must be linked with HDF5 1.14 or 2.x as a shared library")
        })?;
        driver::set_on_access_list_and_push(&hdf5, fapl_id, text(options)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_check_options(options: *const c_char) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| driver::Settings::parse(unsafe { text(options)? }).map(drop))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_set_options(file_id: hid_t, options: *const c_char) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe { driver::set_options(hdf5_of_process()?, file_id, text(options)?) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_file_report(file_id: hid_t, json: *mut *mut c_char) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let place = place_of(json, "json")?;
        let report = driver::report(hdf5_of_process()?, file_id)?;
        *place = CString::new(report).unwrap_or_default().into_raw();
        Ok(())
    })
}
