//! Named datatypes, `H5T`.

use std::ffi::{c_char, c_void};

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::callback::{close, make, operate};

forward! {
    make commit = H5VLdatatype_commit, c"H5Tcommit_async";
    make open = H5VLdatatype_open, c"H5Topen_async";
    operate get = H5VLdatatype_get, c"H5Tget";
    operate specific = H5VLdatatype_specific, c"H5Tflush";
    operate optional = H5VLdatatype_optional, c"H5T";
    close close_datatype = H5VLdatatype_close, c"H5Tclose_async";
}

pub(crate) const CLASS: H5VL_datatype_class_t = H5VL_datatype_class_t {
    commit: Some(commit),
    open: Some(open),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
    close: Some(close_datatype),
};
