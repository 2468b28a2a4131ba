//! Datasets, `H5D`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;
use std::sync::atomic::Ordering::Relaxed;

use penstock_engine::error::Result;
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{H5P_DEFAULT, herr_t, hid_t};

use super::background::{self, Call, Kind, Loan, Way};
use super::host::Quiet;
use super::request;
use super::wrapped::{Ask, Under, Wrapped, attempt, close_after, make, operate};
use penstock_hdf5::library::Session;
use penstock_hdf5::library::callback::{FAIL, SUCCEED};
use penstock_hdf5::transfer::unfinished;

forward! {
    make create = H5VLdataset_create, c"H5Dcreate_async";
    make open = H5VLdataset_open, c"H5Dopen_async";
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
        attempt(datasets[0], Ask::NONE, |first| {
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
            if !matches!(way, Way::Done) {
                refuse_unfinished(&unders)?;
            }
            let mut objects: Vec<*mut c_void> = unders.iter().map(|under| under.object).collect();
            match way {
                Way::Done => Ok(SUCCEED),
                Way::Below => {
                    let status = call(first, objects.as_mut_ptr(), arguments.buf);
                    request::wrap(req, &first.container);
                    Ok(status)
                }
                Way::Staged(mut staging) => {
                    let mut instead = staging.addresses();
                    let status = call(first, objects.as_mut_ptr(), instead.as_mut_ptr());
                    if status >= 0 && kind == Kind::Read {
                        staging.give_back()?;
                    }
                    Ok(status)
                }
            }
        })
    }
}

/// An error if HDF5 is to read or write storage of which it has not finished the allocation.
///
/// # Safety
/// The thread is inside a callback on these datasets.
unsafe fn refuse_unfinished(unders: &[Under]) -> Result<()> {
    if unfinished::is_none() || unders.iter().any(|under| under.is_lent) {
        return Ok(());
    }
    for under in unders {
        // SAFETY: passed on.
        let loan = unsafe { Loan::of(under, H5I_DATASET)? };
        // SAFETY: the thread is inside a call of this HDF5.
        let session = unsafe { Session::begin(under.container.below.host.hdf5) };
        unfinished::refuse(&session, loan.id())?;
    }
    Ok(())
}

/// An operation by the connector below on what pending operations may change.
///
/// # Safety
/// As for [`operate`].
unsafe fn after_pending(obj: *mut c_void, ask: Ask, call: impl FnOnce(&Under) -> herr_t) -> herr_t {
    // SAFETY: passed on.
    unsafe {
        attempt(obj, ask, |under| {
            let _quiet = Quiet::begin(under.container.below.host);
            if !under.is_lent {
                background::settle(under, || background::object_of(under, H5I_DATASET))?;
            }
            Ok(call(under))
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
        let call = |under: &Under| {
            (under.calls.H5VLdataset_get)(under.object, under.id, args, dxpl_id, req)
        };
        let ask = Ask::of(c"H5Dget_space_async", req);
        match (*args).op_type {
            // What storage there is.
            H5VL_DATASET_GET_SPACE_STATUS | H5VL_DATASET_GET_STORAGE_SIZE => {
                after_pending(obj, ask, call)
            }
            _ => operate(obj, ask, call),
        }
    }
}

fn call_of(operation: c_int) -> &'static CStr {
    match operation {
        H5VL_DATASET_SET_EXTENT => c"H5Dset_extent_async",
        H5VL_DATASET_FLUSH => c"H5Dflush",
        _ => c"H5Drefresh",
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
        after_pending(obj, Ask::of(call_of((*args).op_type), req), |under| {
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
        after_pending(obj, Ask::of(c"H5D", req), |under| {
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
        let set = |under: &Under| background::object_of(under, H5I_DATASET);
        let ask = Ask::of(background::CLOSE_DATASET, req);
        let under = Under::of(dset);
        let status = close_after(dset, ask, set, native);
        // Nothing comes after this that could tell of failures.
        let is_last = req.is_null() && !under.is_lent && under.container.is_closed.load(Relaxed);
        match status >= 0 && is_last {
            true => {
                let told = under.caught(|| under.container.policy.failures.take());
                told.map_or(FAIL, |()| status)
            }
            false => status,
        }
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
