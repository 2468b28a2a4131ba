//! Name, value and capabilities by which HDF5 registers the connector.

use std::ffi::CStr;

use penstock_sys::hdf5::connector::H5VL_CAP_FLAG_ASYNC;

/// Name of the connector. Some programs take "async" in it as a sign that operations continue after a
/// call.
pub(crate) const NAME: &CStr = c"penstock_async";

/// Value of the connector. Any connector may use the values from 512 on.
pub(crate) const VALUE: i32 = 27_022;

/// Version of the connector.
pub(crate) const VERSION: u32 = 1;

/// Capabilities of this connector, even if the connector below lacks them.
pub(crate) const CAP_FLAGS: u64 = H5VL_CAP_FLAG_ASYNC;
