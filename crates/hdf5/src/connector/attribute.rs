//! Attributes, `H5A`.

use std::ffi::{c_char, c_void};

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::wrapped::{Location, Req, Under, attempt, close, make, operate};

unsafe extern "C" fn create(
    obj: *mut c_void,
    loc_params: Location,
    attr_name: *const c_char,
    type_id: hid_t,
    space_id: hid_t,
    acpl_id: hid_t,
    aapl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
) -> *mut c_void {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        make(obj, req, |under| {
            (under.calls.H5VLattr_create)(
                under.object,
                loc_params,
                under.id,
                attr_name,
                type_id,
                space_id,
                acpl_id,
                aapl_id,
                dxpl_id,
                req,
            )
        })
    }
}

unsafe extern "C" fn open(
    obj: *mut c_void,
    loc_params: Location,
    attr_name: *const c_char,
    aapl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
) -> *mut c_void {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        make(obj, req, |under| {
            (under.calls.H5VLattr_open)(
                under.object,
                loc_params,
                under.id,
                attr_name,
                aapl_id,
                dxpl_id,
                req,
            )
        })
    }
}

unsafe extern "C" fn read(
    attr: *mut c_void,
    mem_type_id: hid_t,
    buf: *mut c_void,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(attr, req, |under| {
            (under.calls.H5VLattr_read)(under.object, under.id, mem_type_id, buf, dxpl_id, req)
        })
    }
}

unsafe extern "C" fn write(
    attr: *mut c_void,
    mem_type_id: hid_t,
    buf: *const c_void,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(attr, req, |under| {
            (under.calls.H5VLattr_write)(under.object, under.id, mem_type_id, buf, dxpl_id, req)
        })
    }
}

unsafe extern "C" fn get(
    obj: *mut c_void,
    args: *mut H5VL_attr_get_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, req, |under| {
            (under.calls.H5VLattr_get)(under.object, under.id, args, dxpl_id, req)
        })
    }
}

unsafe extern "C" fn specific(
    obj: *mut c_void,
    loc_params: Location,
    args: *mut H5VL_attr_specific_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        let call = |under: &Under| {
            (under.calls.H5VLattr_specific)(under.object, loc_params, under.id, args, dxpl_id, req)
        };
        match (*args).op_type {
            H5VL_ATTR_ITER => attempt(obj, req, |under| Ok(call(under))),
            _ => operate(obj, req, call),
        }
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
        operate(obj, req, |under| {
            (under.calls.H5VLattr_optional)(under.object, under.id, args, dxpl_id, req)
        })
    }
}

unsafe extern "C" fn close_attribute(attr: *mut c_void, dxpl_id: hid_t, req: Req) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        close(attr, req, |under| {
            (under.calls.H5VLattr_close)(under.object, under.id, dxpl_id, req)
        })
    }
}

pub(super) const CLASS: H5VL_attr_class_t = H5VL_attr_class_t {
    create: Some(create),
    open: Some(open),
    read: Some(read),
    write: Some(write),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
    close: Some(close_attribute),
};
