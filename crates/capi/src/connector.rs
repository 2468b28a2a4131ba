//! The HDF5 connector: its class for the plugin, and the functions of `penstock_hdf5.h`.

use std::ffi::{c_char, c_int, c_void};

use penstock_sys::hdf5::connector::H5VL_class_t;
use penstock_sys::hdf5::hid_t;
use penstock_vol as connector;

use crate::dataset::hdf5_of_process;
use crate::driver::text;
use crate::error::guard;

/// Returns the connector class for the HDF5 that contains `code`, the address of an instruction;
/// for the plugin. Returns null on failure, which `penstock_last_error` describes.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_connector_class(code: *const c_void) -> *const H5VL_class_t {
    let mut class = std::ptr::null();
    guard(|| {
        class = connector::class_for(code)?;
        Ok(())
    });
    class
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_hdf5_check_connector_options(options: *const c_char) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe { connector::check(text(options)?) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_fapl_set_connector(fapl_id: hid_t, options: *const c_char) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe { connector::set_on_access_list(hdf5_of_process()?, fapl_id, text(options)?) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_dxpl_set_stream(dxpl_id: hid_t, stream: *mut c_void) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe { connector::set_stream(hdf5_of_process()?, dxpl_id, stream) })
}
