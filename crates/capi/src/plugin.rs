//! The classes of driver and connector, for the plugins.

use std::ffi::c_void;
use std::ptr;

use penstock_engine::error::Result;
use penstock_hdf5::library::callback::{ErrorSite, error_site, push_at};
use penstock_sys::hdf5::connector::H5VL_class_t;
use penstock_sys::hdf5::driver::H5FD_class_t;

use crate::error::guard;

const DRIVER: ErrorSite = error_site(c"penstock_driver", "H5E_PLUGIN_g", "H5E_CANTGET_g");
const CONNECTOR: ErrorSite = error_site(c"penstock_async", "H5E_PLUGIN_g", "H5E_CANTGET_g");

/// Returns the driver class for the HDF5 that contains `code`, the address of an instruction; for
/// the plugin. Returns null on failure, which `penstock_last_error` and HDF5's error stack describe.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_driver_class(code: *const c_void) -> *const H5FD_class_t {
    class(code, DRIVER, || penstock_vfd::class_for(code))
}

/// As [`penstock_driver_class`], for the connector.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_connector_class(code: *const c_void) -> *const H5VL_class_t {
    class(code, CONNECTOR, || penstock_vol::class_for(code))
}

fn class<T: 'static>(
    code: *const c_void,
    site: ErrorSite,
    class_for: impl FnOnce() -> Result<&'static T>,
) -> *const T {
    let mut class = ptr::null();
    guard(|| {
        class = class_for().inspect_err(|error| push_at(code, site, error))?;
        Ok(())
    });
    class
}
