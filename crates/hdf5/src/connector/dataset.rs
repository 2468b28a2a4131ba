//! Datasets, `H5D`.

use std::ffi::{c_char, c_void};
use std::slice;

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{herr_t, hid_t};

use super::wrapped::{Location, Req, Under, attempt, close, make, operate};
use crate::edge::SUCCEED;

unsafe extern "C" fn create(
    obj: *mut c_void,
    loc_params: Location,
    name: *const c_char,
    lcpl_id: hid_t,
    type_id: hid_t,
    space_id: hid_t,
    dcpl_id: hid_t,
    dapl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
) -> *mut c_void {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        make(obj, req, |under| {
            (under.calls.H5VLdataset_create)(
                under.object,
                loc_params,
                under.id,
                name,
                lcpl_id,
                type_id,
                space_id,
                dcpl_id,
                dapl_id,
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
    dapl_id: hid_t,
    dxpl_id: hid_t,
    req: Req,
) -> *mut c_void {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        make(obj, req, |under| {
            (under.calls.H5VLdataset_open)(
                under.object,
                loc_params,
                under.id,
                name,
                dapl_id,
                dxpl_id,
                req,
            )
        })
    }
}

unsafe extern "C" fn read(
    count: usize,
    dset: *mut *mut c_void,
    mem_type_id: *mut hid_t,
    mem_space_id: *mut hid_t,
    file_space_id: *mut hid_t,
    dxpl_id: hid_t,
    buf: *mut *mut c_void,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        transfer(count, dset, req, |under, datasets| {
            (under.calls.H5VLdataset_read)(
                count,
                datasets,
                under.id,
                mem_type_id,
                mem_space_id,
                file_space_id,
                dxpl_id,
                buf,
                req,
            )
        })
    }
}

unsafe extern "C" fn write(
    count: usize,
    dset: *mut *mut c_void,
    mem_type_id: *mut hid_t,
    mem_space_id: *mut hid_t,
    file_space_id: *mut hid_t,
    dxpl_id: hid_t,
    buf: *mut *const c_void,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        transfer(count, dset, req, |under, datasets| {
            (under.calls.H5VLdataset_write)(
                count,
                datasets,
                under.id,
                mem_type_id,
                mem_space_id,
                file_space_id,
                dxpl_id,
                buf,
                req,
            )
        })
    }
}

/// A read or write of several datasets at once, which the connector below gets as its own.
///
/// # Safety
/// `dset` holds `count` datasets that HDF5 holds; else as for [`operate`].
unsafe fn transfer(
    count: usize,
    dset: *mut *mut c_void,
    req: Req,
    call: impl FnOnce(&Under, *mut *mut c_void) -> herr_t,
) -> herr_t {
    if count == 0 {
        return SUCCEED;
    }
    // SAFETY: passed on.
    unsafe {
        let datasets = slice::from_raw_parts(dset, count);
        attempt(datasets[0], req, |first| {
            let mut below = Vec::with_capacity(count);
            for dataset in datasets {
                let under = Under::of(*dataset);
                first.together_with(&under)?;
                below.push(under.object);
            }
            Ok(first.quietly(|| call(first, below.as_mut_ptr())))
        })
    }
}

unsafe extern "C" fn get(
    obj: *mut c_void,
    args: *mut H5VL_dataset_get_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, req, |under| {
            (under.calls.H5VLdataset_get)(under.object, under.id, args, dxpl_id, req)
        })
    }
}

unsafe extern "C" fn specific(
    obj: *mut c_void,
    args: *mut H5VL_dataset_specific_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        operate(obj, req, |under| {
            (under.calls.H5VLdataset_specific)(under.object, under.id, args, dxpl_id, req)
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
        operate(obj, req, |under| {
            (under.calls.H5VLdataset_optional)(under.object, under.id, args, dxpl_id, req)
        })
    }
}

unsafe extern "C" fn close_dataset(dset: *mut c_void, dxpl_id: hid_t, req: Req) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        close(dset, req, |under| {
            (under.calls.H5VLdataset_close)(under.object, under.id, dxpl_id, req)
        })
    }
}

pub(super) const CLASS: H5VL_dataset_class_t = H5VL_dataset_class_t {
    create: Some(create),
    open: Some(open),
    read: Some(read),
    write: Some(write),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
    close: Some(close_dataset),
};
