//! Elements of variable length, in the heap of the file.

use std::ffi::c_void;

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::herr_t;

use super::callback::operate;

forward! {
    operate put = H5VLblob_put;
    operate get = H5VLblob_get;
    operate specific = H5VLblob_specific;
    operate optional = H5VLblob_optional;
}

pub(crate) const CLASS: H5VL_blob_class_t = H5VL_blob_class_t {
    put: Some(put),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
};
