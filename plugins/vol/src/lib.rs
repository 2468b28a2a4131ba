//! The plugin by which HDF5 finds the connector "penstock_async":
//! `HDF5_VOL_CONNECTOR=penstock_async`.
//!
//! It is linked with no HDF5, so one file serves every version and every copy of it.

use std::ffi::{c_int, c_void};
use std::mem;

use penstock_forward::{function, with_caller};

/// `H5PL_TYPE_VOL` of H5PLextern.h.
const CONNECTOR: c_int = 1;

#[unsafe(no_mangle)]
pub extern "C" fn H5PLget_plugin_type() -> c_int {
    CONNECTOR
}

with_caller! {
    /// The connector's class for the HDF5 that calls; null if libpenstock.so cannot be loaded.
    fn H5PLget_plugin_info() -> *const c_void => class_for, "rdi", "x0"
}

unsafe extern "C" fn class_for(code: *const c_void) -> *const c_void {
    let found = function(c"penstock_connector_class");
    if found.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the signature is that of crates/capi/src/connector.rs.
    let class: unsafe extern "C" fn(*const c_void) -> *const c_void =
        unsafe { mem::transmute(found) };
    // SAFETY: `code` is where HDF5 goes on, as the function asks.
    unsafe { class(code) }
}
