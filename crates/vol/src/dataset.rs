//! Datasets, `H5D`.

use std::ffi::{c_char, c_void};
use std::slice;
use std::sync::atomic::Ordering::Relaxed;

use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{H5P_DEFAULT, herr_t, hid_t};

use super::access_sets::object_access;
use super::api_call::{ApiCall, NO_REQUEST};
use super::background::{self, DatasetCall, Disposition};
use super::callback::{attempt, close_after, make, operate};
use super::calling_library::Quiet;
use super::dataspace::{H5S_BLOCK, OwnedSpace, block_for};
use super::temporary_id::TemporaryId;
use super::under::{Below, CALL, Under};
use super::wrapped::Wrapped;
use penstock_hdf5::library::Session;
use penstock_hdf5::library::callback::{FAIL, SUCCEED, caught};
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
            |below, datasets, buffers, req| {
                let (types, memory, file) = (mem_type_id, mem_space_id, file_space_id);
                match below {
                    Below::Native(native) => native.read.map_or(FAIL, |read| {
                        read(count, datasets, types, memory, file, dxpl_id, buffers, req)
                    }),
                    Below::Other(under) => under.quietly(|| {
                        let (read, id) = (under.calls.H5VLdataset_read, under.id);
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
            |below, datasets, buffers, req| {
                let (types, memory, file) = (mem_type_id, mem_space_id, file_space_id);
                let buffers = buffers.cast();
                match below {
                    Below::Native(native) => native.write.map_or(FAIL, |write| {
                        write(count, datasets, types, memory, file, dxpl_id, buffers, req)
                    }),
                    Below::Other(under) => under.quietly(|| {
                        let (write, id) = (under.calls.H5VLdataset_write, under.id);
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
    call: impl Fn(Below<'_>, *mut *mut c_void, *mut *mut c_void, Req) -> herr_t,
) -> herr_t {
    let Arguments { count, req, .. } = *arguments;
    if count == 0 {
        return SUCCEED;
    }
    // SAFETY: the caller guarantees this: each array has `count` entries. A wrapper is an address.
    unsafe {
        let transfer = DatasetCall {
            operation,
            datasets: slice::from_raw_parts(arguments.dset.cast::<&Wrapped>(), count),
            unders: &[],
            memory_types: slice::from_raw_parts(arguments.mem_type_id, count),
            memory_spaces: slice::from_raw_parts(arguments.mem_space_id, count),
            file_spaces: slice::from_raw_parts(arguments.file_space_id, count),
            list: arguments.dxpl_id,
            buffers: slice::from_raw_parts(arguments.buf.cast::<usize>(), count),
            req,
        };
        let first = transfer.datasets[0];
        let body = || match first.is_gone() {
            true => Ok((Vec::new(), false)),
            false => {
                let memories = transfer.memories()?;
                let goes_below = background::goes_below_at_once(&transfer, &memories)?;
                Ok((memories, goes_below))
            }
        };
        let Some((memories, goes_below)) = caught(first.library().hdf5, CALL, body) else {
            return FAIL;
        };
        if goes_below {
            return at_once(&transfer, arguments.buf, call);
        }
        let object: *const Wrapped = first;
        attempt(object.cast(), ApiCall::NONE, |first| {
            let mut unders = vec![first.clone()];
            for dataset in &transfer.datasets[1..] {
                let under = dataset.under();
                first.together_with(&under)?;
                unders.push(under);
            }
            let blocks = Blocks::of(&transfer, &unders);
            let transfer = DatasetCall {
                unders: &unders,
                memory_spaces: &blocks.memory_spaces,
                ..transfer
            };
            carry_out(&transfer, memories, arguments.buf, call)
        })
    }
}

/// The dataspaces of the memory of a call, with own ones in place of H5S_BLOCK.
struct Blocks {
    memory_spaces: Vec<hid_t>,
    _own: Vec<OwnedSpace>,
}

impl Blocks {
    /// # Safety
    /// As for [`transfer`].
    unsafe fn of(call: &DatasetCall<'_>, unders: &[Under]) -> Blocks {
        let mut memory_spaces = call.memory_spaces.to_vec();
        let mut own = Vec::new();
        for (at, space) in memory_spaces.iter_mut().enumerate() {
            if *space != H5S_BLOCK {
                continue;
            }
            // SAFETY: the caller guarantees this.
            if let Some(block) = unsafe { block_for(&unders[at], call.file_spaces[at]) } {
                *space = block.id;
                own.push(block);
            }
        }
        Blocks {
            memory_spaces,
            _own: own,
        }
    }
}

/// Makes the call of the connector below that the application has made.
///
/// # Safety
/// As for [`transfer`]; `buffers` are those of HDF5.
unsafe fn at_once(
    transfer: &DatasetCall<'_>,
    buffers: *mut *mut c_void,
    call: impl Fn(Below<'_>, *mut *mut c_void, *mut *mut c_void, Req) -> herr_t,
) -> herr_t {
    let (dataset, req) = (transfer.datasets[0], transfer.req);
    let mut object = dataset.object();
    // SAFETY: the caller guarantees this.
    unsafe {
        let status = match dataset.container().native.get() {
            Some(Some(native)) => dataset
                .container()
                .in_call(|| call(Below::Native(native), &mut object, buffers, req)),
            _ => {
                let under = dataset.under();
                let container = &under.container;
                let status = container.in_call(|| call(under.below(), &mut object, buffers, req));
                Wrapped::wrap_request(req, dataset.container());
                status
            }
        };
        if status < 0 && transfer.operation == Operation::Write {
            let under = dataset.under();
            under.caught(|| note_unfinished(&under));
        }
        status
    }
}

/// As [`transfer`], for a call that may continue in the background. `memories` is the answer of
/// [`DatasetCall::memories`].
///
/// # Safety
/// As for [`at_once`].
unsafe fn carry_out(
    transfer: &DatasetCall<'_>,
    memories: Vec<Memory>,
    buffers: *mut *mut c_void,
    call: impl Fn(Below<'_>, *mut *mut c_void, *mut *mut c_void, Req) -> herr_t,
) -> Result<herr_t> {
    let (unders, req) = (transfer.unders, transfer.req);
    let first = &unders[0];
    let _quiet = Quiet::begin(first.library());
    let call = |buffers, req, objects| {
        // SAFETY: the caller guarantees this.
        let below = || unsafe { call(first.below(), objects, buffers, req) };
        first.container.in_call(below)
    };
    // SAFETY: the caller guarantees this.
    unsafe {
        let disposition = background::read_or_write(transfer, memories)?;
        if !matches!(disposition, Disposition::Done) {
            refuse_unfinished(unders)?;
        }
        let mut objects: Vec<*mut c_void> = unders.iter().map(|under| under.object).collect();
        let objects = objects.as_mut_ptr();
        let status = match disposition {
            Disposition::Done => return Ok(SUCCEED),
            Disposition::Below => {
                let status = call(buffers, req, objects);
                Wrapped::wrap_request(req, &first.container);
                status
            }
            Disposition::BelowOnHost(mut buffers) => {
                let mut addresses = buffers.addresses();
                // The buffers end with this call, so the connector below must not continue after it.
                let status = call(addresses.as_mut_ptr(), NO_REQUEST, objects);
                if status >= 0 && transfer.operation == Operation::Read {
                    buffers.copy_back()?;
                }
                status
            }
        };
        if status < 0 && transfer.operation == Operation::Write && unders.len() == 1 {
            note_unfinished(first)?;
        }
        Ok(status)
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
            Ok(under.container.in_call(|| call(under)))
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
