//! The plugin by which HDF5 finds the driver "penstock": `HDF5_DRIVER=penstock`.
//!
//! It is linked with no HDF5, so one file serves every version and every copy of it.

use std::ffi::{c_int, c_void};
use std::mem;

use penstock_forward::{function, with_caller};

/// `H5PL_TYPE_VFD` of H5PLextern.h.
const VIRTUAL_FILE_DRIVER: c_int = 2;

#[unsafe(no_mangle)]
pub extern "C" fn H5PLget_plugin_type() -> c_int {
    VIRTUAL_FILE_DRIVER
}

with_caller! {
    /// The driver's class for the HDF5 that calls; null if libpenstock.so cannot be loaded.
    fn H5PLget_plugin_info() -> *const c_void => class_for, "rdi", "x0"
}

unsafe extern "C" fn class_for(code: *const c_void) -> *const c_void {
    let found = function(c"penstock_driver_class");
    if found.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the signature is that of crates/capi/src/driver.rs.
    let class: unsafe extern "C" fn(*const c_void) -> *const c_void =
        unsafe { mem::transmute(found) };
    // SAFETY: `code` is where HDF5 goes on, as the function asks.
    unsafe { class(code) }
}
