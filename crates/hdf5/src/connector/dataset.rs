//! Datasets, `H5D`.

use std::ffi::{c_char, c_int, c_void};
use std::slice;

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{H5P_DEFAULT, herr_t, hid_t};

use super::background::{self, Call, Kind, Way};
use super::host::Quiet;
use super::wrapped::{
    Location, NONE, Req, Under, Wrapped, attempt, below, close_after, make, operate,
};
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
    let arguments = Arguments {
        count,
        dset,
        mem_type_id,
        mem_space_id,
        file_space_id,
        dxpl_id,
        buf,
        req,
    };
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        transfer(Kind::Read, &arguments, |under, datasets, buffers| {
            (under.calls.H5VLdataset_read)(
                count,
                datasets,
                under.id,
                mem_type_id,
                mem_space_id,
                file_space_id,
                dxpl_id,
                buffers,
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
    let arguments = Arguments {
        count,
        dset,
        mem_type_id,
        mem_space_id,
        file_space_id,
        dxpl_id,
        buf: buf.cast(),
        req,
    };
    // SAFETY: HDF5's arguments are passed on. A write only reads the buffers.
    unsafe {
        transfer(Kind::Write, &arguments, |under, datasets, buffers| {
            (under.calls.H5VLdataset_write)(
                count,
                datasets,
                under.id,
                mem_type_id,
                mem_space_id,
                file_space_id,
                dxpl_id,
                buffers.cast(),
                req,
            )
        })
    }
}

/// Those of a read or write of several datasets at once.
struct Arguments {
    count: usize,
    dset: *mut *mut c_void,
    mem_type_id: *mut hid_t,
    mem_space_id: *mut hid_t,
    file_space_id: *mut hid_t,
    dxpl_id: hid_t,
    buf: *mut *mut c_void,
    req: Req,
}

/// A read or write, in the background or by the connector below, which gets the datasets as its own.
///
/// # Safety
/// The arguments are those that HDF5 has given; else as for [`operate`].
unsafe fn transfer(
    kind: Kind,
    arguments: &Arguments,
    call: impl FnOnce(&Under, *mut *mut c_void, *mut *mut c_void) -> herr_t,
) -> herr_t {
    let Arguments { count, req, .. } = *arguments;
    if count == 0 {
        return SUCCEED;
    }
    // SAFETY: passed on: each array has `count` entries.
    unsafe {
        let datasets = slice::from_raw_parts(arguments.dset, count);
        attempt(datasets[0], NONE, |first| {
            let mut unders = Vec::with_capacity(count);
            for dataset in datasets {
                let under = Under::of(*dataset);
                first.together_with(&under)?;
                unders.push(under);
            }
            let wrapped: Vec<&Wrapped> = datasets.iter().map(|d| Wrapped::of(*d)).collect();
            let buffers = slice::from_raw_parts(arguments.buf, count);
            let buffers: Vec<usize> = buffers.iter().map(|buffer| *buffer as usize).collect();
            let _quiet = Quiet::begin(first.container.below.host);
            let way = background::transfer(&Call {
                kind,
                datasets: &wrapped,
                unders: &unders,
                memory_types: slice::from_raw_parts(arguments.mem_type_id, count),
                memory_spaces: slice::from_raw_parts(arguments.mem_space_id, count),
                file_spaces: slice::from_raw_parts(arguments.file_space_id, count),
                list: arguments.dxpl_id,
                buffers: &buffers,
                req,
            })?;
            let mut objects: Vec<*mut c_void> = unders.iter().map(|under| under.object).collect();
            match way {
                Way::Done => Ok(SUCCEED),
                Way::Below => {
                    let status = call(first, objects.as_mut_ptr(), arguments.buf);
                    Ok(below(first, req, status))
                }
                Way::Staged(mut staging) => {
                    let mut instead = staging.addresses();
                    let status = call(first, objects.as_mut_ptr(), instead.as_mut_ptr());
                    if status >= 0 && kind == Kind::Read {
                        staging.give_back()?;
                    }
                    Ok(below(first, req, status))
                }
            }
        })
    }
}

/// An operation by the connector below on what pending operations may change.
///
/// # Safety
/// As for [`operate`].
unsafe fn after_pending(obj: *mut c_void, req: Req, call: impl FnOnce(&Under) -> herr_t) -> herr_t {
    // SAFETY: passed on.
    unsafe {
        attempt(obj, req, |under| {
            let _quiet = Quiet::begin(under.container.below.host);
            if !under.is_lent {
                background::settle(under, || background::object_of(under, H5I_DATASET))?;
            }
            Ok(call(under))
        })
    }
}

/// What storage there is.
const GET_SPACE_STATUS: c_int = 3;
const GET_STORAGE_SIZE: c_int = 4;

unsafe extern "C" fn get(
    obj: *mut c_void,
    args: *mut H5VL_dataset_get_args_t,
    dxpl_id: hid_t,
    req: Req,
) -> herr_t {
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        let call = |under: &Under| {
            (under.calls.H5VLdataset_get)(under.object, under.id, args, dxpl_id, req)
        };
        match (*args).op_type {
            GET_SPACE_STATUS | GET_STORAGE_SIZE => after_pending(obj, req, call),
            _ => operate(obj, req, call),
        }
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
        after_pending(obj, req, |under| {
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
        after_pending(obj, req, |under| {
            (under.calls.H5VLdataset_optional)(under.object, under.id, args, dxpl_id, req)
        })
    }
}

unsafe extern "C" fn close_dataset(dset: *mut c_void, _dxpl_id: hid_t, req: Req) -> herr_t {
    let native = |under: &Under, req: Req| {
        // SAFETY: HDF5 closes the dataset, or has asked for it when something was pending.
        unsafe { (under.calls.H5VLdataset_close)(under.object, under.id, H5P_DEFAULT, req) }
    };
    // SAFETY: HDF5's arguments are passed on.
    unsafe {
        let claim = |under: &Under| background::object_of(under, H5I_DATASET);
        close_after(dset, req, background::CLOSE_DATASET, claim, native)
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
