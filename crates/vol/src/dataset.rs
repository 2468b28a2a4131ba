//! Datasets, `H5D`.

use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::{iter, slice};

use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{H5P_DEFAULT, herr_t, hid_t};

use super::access_sets::object_access;
use super::api_call::{ApiCall, NO_REQUEST};
use super::background::{self, DatasetCall, Disposition};
use super::callback::{attempt, close_after, make, operate};
use super::calling_library::Quiet;
use super::temporary_id::TemporaryId;
use super::under::Under;
use super::wrapped::Wrapped;
use penstock_hdf5::library::Session;
use penstock_hdf5::library::callback::{FAIL, SUCCEED};
use penstock_hdf5::transfer::unfinished;

forward! {
    make create = H5VLdataset_create, c"H5Dcreate_async";
    make open = H5VLdataset_open, c"H5Dopen_async";
    match get = H5VLdataset_get {
        // The answer depends on the allocated storage.
        H5VL_DATASET_GET_SPACE_STATUS | H5VL_DATASET_GET_STORAGE_SIZE =>
            after_pending c"H5Dget_space_async",
        _ => operate c"H5Dget_space_async",
    };
    match specific = H5VLdataset_specific {
        H5VL_DATASET_SET_EXTENT => after_pending c"H5Dset_extent_async",
        H5VL_DATASET_FLUSH => after_pending c"H5Dflush",
        _ => after_pending c"H5Drefresh",
    };
    after_pending optional = H5VLdataset_optional, c"H5D";
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
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        transfer(
            Operation::Read,
            &arguments,
            |under, datasets, buffers, req| {
                let (types, memory, file) = (mem_type_id, mem_space_id, file_space_id);
                match under.native().and_then(|native| native.read) {
                    Some(read) => read(count, datasets, types, memory, file, dxpl_id, buffers, req),
                    None => under.quietly(|| {
                        let read = under.calls.H5VLdataset_read;
                        let id = under.id;
                        read(
                            count, datasets, id, types, memory, file, dxpl_id, buffers, req,
                        )
                    }),
                }
            },
        )
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
    // SAFETY: the call passes HDF5's arguments on. A write only reads the buffers.
    unsafe {
        transfer(
            Operation::Write,
            &arguments,
            |under, datasets, buffers, req| {
                let (types, memory, file) = (mem_type_id, mem_space_id, file_space_id);
                let buffers = buffers.cast();
                match under.native().and_then(|native| native.write) {
                    Some(write) => {
                        write(count, datasets, types, memory, file, dxpl_id, buffers, req)
                    }
                    None => under.quietly(|| {
                        let write = under.calls.H5VLdataset_write;
                        let id = under.id;
                        write(
                            count, datasets, id, types, memory, file, dxpl_id, buffers, req,
                        )
                    }),
                }
            },
        )
    }
}

/// The arguments of a read or write of several datasets.
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

/// Reads or writes in the background, or by the connector below. `call` calls that connector with its own
/// objects, with the addresses of the buffers, and with the pointer for a request.
///
/// # Safety
/// HDF5 has given the arguments. Otherwise as for [`operate`].
unsafe fn transfer(
    operation: Operation,
    arguments: &Arguments,
    call: impl FnOnce(&Under, *mut *mut c_void, *mut *mut c_void, Req) -> herr_t,
) -> herr_t {
    let Arguments { count, req, .. } = *arguments;
    if count == 0 {
        return SUCCEED;
    }
    // SAFETY: the caller guarantees this: each array has `count` entries.
    unsafe {
        let datasets = slice::from_raw_parts(arguments.dset, count);
        attempt(datasets[0], ApiCall::NONE, |first| {
            let mut others = Vec::new();
            for dataset in &datasets[1..] {
                let under = Wrapped::of(*dataset).under();
                first.together_with(&under)?;
                others.push(under);
            }
            // A call of one dataset, which may be small, allocates no memory for lists.
            let several: Vec<Under>;
            let unders = match others.is_empty() {
                true => slice::from_ref(first),
                false => {
                    several = iter::once(first.clone()).chain(others).collect();
                    &several
                }
            };
            let transfer = DatasetCall {
                operation,
                // A wrapper is an address, as HDF5 has it.
                datasets: slice::from_raw_parts(arguments.dset.cast::<&Wrapped>(), count),
                unders,
                memory_types: slice::from_raw_parts(arguments.mem_type_id, count),
                memory_spaces: slice::from_raw_parts(arguments.mem_space_id, count),
                file_spaces: slice::from_raw_parts(arguments.file_space_id, count),
                list: arguments.dxpl_id,
                buffers: slice::from_raw_parts(arguments.buf.cast::<usize>(), count),
                req,
            };
            carry_out(&transfer, arguments.buf, call)
        })
    }
}

/// As [`transfer`], for a call whose arguments are in order.
///
/// # Safety
/// As for [`transfer`]; `buffers` are those of HDF5.
unsafe fn carry_out(
    of: &DatasetCall<'_>,
    buffers: *mut *mut c_void,
    call: impl FnOnce(&Under, *mut *mut c_void, *mut *mut c_void, Req) -> herr_t,
) -> Result<herr_t> {
    let first = &of.unders[0];
    // SAFETY: the caller guarantees this.
    unsafe {
        let memories = of.memories()?;
        if background::goes_below_at_once(of, &memories)? {
            let mut object = first.object;
            let status = call(first, &mut object, buffers, of.req);
            Wrapped::wrap_request(of.req, &first.container);
            if status < 0 && of.operation == Operation::Write {
                note_unfinished(first)?;
            }
            return Ok(status);
        }
        let _quiet = Quiet::begin(first.library());
        let disposition = background::read_or_write(of, memories)?;
        if !matches!(disposition, Disposition::Done) {
            refuse_unfinished(of.unders)?;
        }
        let mut objects: Vec<*mut c_void> = of.unders.iter().map(|under| under.object).collect();
        match disposition {
            Disposition::Done => Ok(SUCCEED),
            Disposition::Below => {
                let status = call(first, objects.as_mut_ptr(), buffers, of.req);
                Wrapped::wrap_request(of.req, &first.container);
                Ok(status)
            }
            Disposition::BelowOnHost(mut buffers) => {
                let mut addresses = buffers.addresses();
                // The buffers end with this call, so the connector below must not continue after it.
                let (objects, addresses) = (objects.as_mut_ptr(), addresses.as_mut_ptr());
                let status = call(first, objects, addresses, NO_REQUEST);
                if status >= 0 && of.operation == Operation::Read {
                    buffers.copy_back()?;
                }
                Ok(status)
            }
        }
    }
}

/// Returns an error if HDF5 would read or write storage whose allocation it has not finished.
///
/// # Safety
/// The thread is inside a callback on these datasets.
unsafe fn refuse_unfinished(unders: &[Under]) -> Result<()> {
    if unfinished::is_none() || unders.iter().any(|under| under.is_internal) {
        return Ok(());
    }
    for under in unders {
        // SAFETY: the caller guarantees this.
        let id = unsafe { TemporaryId::of(under, H5I_DATASET)? };
        // SAFETY: the thread is inside a call of this HDF5.
        let session = unsafe { Session::begin(under.library().hdf5) };
        unfinished::refuse(&session, id.get())?;
    }
    Ok(())
}

/// Records a dataset whose allocation HDF5 has not finished in the write that has just failed.
///
/// # Safety
/// As for [`refuse_unfinished`].
unsafe fn note_unfinished(under: &Under) -> Result<()> {
    if under.is_internal {
        return Ok(());
    }
    let library = under.library();
    // SAFETY: the thread is inside a call of this HDF5.
    let session = unsafe { Session::begin(library.hdf5) };
    match unfinished::has_stopped(&session) {
        true => library.keeping_errors(|| {
            // SAFETY: the caller guarantees this.
            let id = unsafe { TemporaryId::of(under, H5I_DATASET)? };
            unfinished::note(&session, id.get())
        }),
        false => Ok(()),
    }
}

/// Makes a call of the connector below that depends on what pending operations change.
///
/// # Safety
/// As for [`operate`].
unsafe fn after_pending(
    obj: *mut c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    unsafe {
        attempt(obj, api_call, |under| {
            let _quiet = Quiet::begin(under.library());
            if !under.is_internal {
                background::finish_conflicting(under, || object_access(under, H5I_DATASET))?;
            }
            Ok(call(under))
        })
    }
}

unsafe extern "C" fn close_dataset(dset: *mut c_void, _dxpl_id: hid_t, req: Req) -> herr_t {
    let native = |under: &Under, req: Req| {
        // SAFETY: HDF5 closes the dataset, now or in an earlier call that deferred the close.
        unsafe { (under.calls.H5VLdataset_close)(under.object, under.id, H5P_DEFAULT, req) }
    };
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        let set = |under: &Under| object_access(under, H5I_DATASET);
        let api_call = ApiCall::of(background::CLOSE_DATASET, req);
        let under = Wrapped::of(dset).under();
        let status = close_after(dset, api_call, set, native);
        // No later call can report the failures.
        let is_last =
            req.is_null() && !under.is_internal && under.container.is_closed.load(Relaxed);
        match status >= 0 && is_last {
            true => {
                let reported = under.caught(|| under.container.policy.failures.take());
                reported.map_or(FAIL, |()| status)
            }
            false => status,
        }
    }
}

pub(crate) const CLASS: H5VL_dataset_class_t = H5VL_dataset_class_t {
    create: Some(create),
    open: Some(open),
    read: Some(read),
    write: Some(write),
    get: Some(get),
    specific: Some(specific),
    optional: Some(optional),
    close: Some(close_dataset),
};
