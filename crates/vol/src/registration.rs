//! How HDF5 identifies the connector.

use std::ffi::CStr;

use penstock_sys::hdf5::connector::H5VL_CAP_FLAG_ASYNC;

/// Some programs conclude from "async" in the name that operations continue after a call.
pub(crate) const NAME: &CStr = c"penstock_async";

/// HDF5 knows the connector by this value and by its name. Values from 512 on are free for all.
pub(crate) const VALUE: i32 = 27_022;

pub(crate) const VERSION: u32 = 1;

/// What this connector can do even if the connector below cannot.
pub(crate) const CAP_FLAGS: u64 = H5VL_CAP_FLAG_ASYNC;
