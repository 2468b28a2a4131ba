//! Datatypes that have a name in the file, `H5T`.

use std::ffi::{c_char, c_void};

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::wrapped::{Ask, Location, Req, close, make, operate};

unsafe extern "C" fn commit(
    obj: *mut c_void,
    loc_params: Location,
    name: *const c_char,
    type_id: hid_t,
    lcpl_id: hid_t,
    tcpl_id: hid_t,
    tapl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
) -> *mut c_void {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        make(obj, Ask::of(c"H5Tcommit_async", req), |under| {
            (under.calls.H5VLdatatype_commit)(
                under.object,
                loc_params,
                under.id,
                name,
                type_id,
                lcpl_id,
                tcpl_id,
                tapl_id,
                dxpl_id,
                req,
            )
        })
    }
}

unsafe extern "C" fn open(
    obj: *mut c_void,
    loc_params: Location,
    name: *const c_char,
    tapl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
) -> *mut c_void {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        make(obj, Ask::of(c"H5Topen_async", req), |under| {
            (under.calls.H5VLdatatype_open)(
                under.object,
                loc_params,
                under.id,
                name,
                tapl_id,
                dxpl_id,
                req,
            )
        })
    }
}

unsafe extern "C" fn get(
    obj: *mut c_void,
    args: *mut H5VL_datatype_get_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, Ask::of(c"H5Tget", req), |under| {
            (under.calls.H5VLdatatype_get)(under.object, under.id, args, dxpl_id, req)
        })
    }
}

unsafe extern "C" fn specific(
    obj: *mut c_void,
    args: *mut H5VL_datatype_specific_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, Ask::of(c"H5Tflush", req), |under| {
            (under.calls.H5VLdatatype_specific)(under.object, under.id, args, dxpl_id, req)
        })
    }
}

unsafe extern "C" fn optional(
    obj: *mut c_void,
    args: *mut H5VL_optional_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, Ask::of(c"H5T", req), |under| {
            (under.calls.H5VLdatatype_optional)(under.object, under.id, args, dxpl_id, req)
        })
    }
}

unsafe extern "C" fn close_datatype(dt: *mut c_void, dxpl_id: hid_t, req: Req) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        close(dt, Ask::of(c"H5Tclose_async", req), |under| {
            (under.calls.H5VLdatatype_close)(under.object, under.id, dxpl_id, req)
        })
    }
}

pub(super) const CLASS: H5VL_datatype_class_t = H5VL_datatype_class_t {
    commit: Some(commit),
    open: Some(open),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
    close: Some(close_datatype),
};
