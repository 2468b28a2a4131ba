//! The HDF5 connector: the functions of `penstock_hdf5.h`.

use std::ffi::{c_char, c_int, c_void};

use penstock_sys::hdf5::hid_t;
use penstock_vol as connector;

use crate::dataset::hdf5_of_process;
use crate::driver::text;
use crate::error::guard;

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
