//! Tokens, which give the location of an object in its file.

use std::ffi::{c_char, c_int};

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::herr_t;

use super::callback::operate;

forward! {
    operate cmp = H5VLtoken_cmp;
    operate to_str = H5VLtoken_to_str;
    operate from_str = H5VLtoken_from_str;
}

pub(crate) const CLASS: H5VL_token_class_t = H5VL_token_class_t {
    cmp: Some(cmp),
    to_str: Some(to_str),
    from_str: Some(from_str),
};
