//! Tokens: where an object lies in its file.

use std::ffi::{c_char, c_int, c_void};

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::herr_t;

use super::wrapped::{Ask, operate};

unsafe extern "C" fn cmp(
    obj: *mut c_void,
    token1: *const H5O_token_t,
    token2: *const H5O_token_t,
    cmp_value: *mut c_int,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, Ask::NONE, |under| {
            (under.calls.H5VLtoken_cmp)(under.object, under.id, token1, token2, cmp_value)
        })
    }
}

unsafe extern "C" fn to_str(
    obj: *mut c_void,
    obj_type: H5I_type_t,
    token: *const H5O_token_t,
    token_str: *mut *mut c_char,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, Ask::NONE, |under| {
            (under.calls.H5VLtoken_to_str)(under.object, obj_type, under.id, token, token_str)
        })
    }
}

unsafe extern "C" fn from_str(
    obj: *mut c_void,
    obj_type: H5I_type_t,
    token_str: *const c_char,
    token: *mut H5O_token_t,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, Ask::NONE, |under| {
            (under.calls.H5VLtoken_from_str)(under.object, obj_type, under.id, token_str, token)
        })
    }
}

pub(super) const CLASS: H5VL_token_class_t = H5VL_token_class_t {
    cmp: Some(cmp),
    to_str: Some(to_str),
    from_str: Some(from_str),
};
