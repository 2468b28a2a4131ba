//! Elements of variable length, in the heap of the file.

use std::ffi::c_void;

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::herr_t;

use super::wrapped::{Ask, operate};

unsafe extern "C" fn put(
    obj: *mut c_void,
    buf: *const c_void,
    size: usize,
    blob_id: *mut c_void,
    ctx: *mut c_void,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, Ask::NONE, |under| {
            (under.calls.H5VLblob_put)(under.object, under.id, buf, size, blob_id, ctx)
        })
    }
}

unsafe extern "C" fn get(
    obj: *mut c_void,
    blob_id: *const c_void,
    buf: *mut c_void,
    size: usize,
    ctx: *mut c_void,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, Ask::NONE, |under| {
            (under.calls.H5VLblob_get)(under.object, under.id, blob_id, buf, size, ctx)
        })
    }
}

unsafe extern "C" fn specific(
    obj: *mut c_void,
    blob_id: *mut c_void,
    args: *mut H5VL_blob_specific_args_t,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, Ask::NONE, |under| {
            (under.calls.H5VLblob_specific)(under.object, under.id, blob_id, args)
        })
    }
}

unsafe extern "C" fn optional(
    obj: *mut c_void,
    blob_id: *mut c_void,
    args: *mut H5VL_optional_args_t,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, Ask::NONE, |under| {
            (under.calls.H5VLblob_optional)(under.object, under.id, blob_id, args)
        })
    }
}

pub(super) const CLASS: H5VL_blob_class_t = H5VL_blob_class_t {
    put: Some(put),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
};
