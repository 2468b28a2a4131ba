//! Datasets, `H5D`.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::rc::Rc;
use std::slice;
use std::sync::atomic::Ordering::Relaxed;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::{H5P_DEFAULT, herr_t, hid_t};

use super::access_sets::object_access;
use super::api_call::{ApiCall, NO_REQUEST};
use super::background::{self, DatasetCall, Disposition};
use super::callback::{attempt, close_and_report, make, operate};
use super::calling_function::is_h5dclose;
use super::calling_library::Quiet;
use super::conversion::type_of;
use super::dataspace::{H5S_BLOCK, block_for, nothing_of};
use super::host_buffers::HostBuffers;
use super::owned_id::OwnedId;
use super::temporary_id::{TemporaryId, kind_of};
use super::under::{Below, CALL, Under};
use super::wrapped::Wrapped;
use penstock_hdf5::library::Session;
use penstock_hdf5::library::callback::{FAIL, SUCCEED, run_callback};
use penstock_hdf5::transfer::unfinished_storage;

forward! {
    match get = H5VLdataset_get {
        // The answer depends on the allocated storage.
        H5VL_DATASET_GET_SPACE_STATUS => after_pending c"H5Dget_space_async",
        H5VL_DATASET_GET_STORAGE_SIZE => answer_after_pending c"H5Dget_space_async",
        _ => operate c"H5Dget_space_async",
    };
    match specific = H5VLdataset_specific {
        H5VL_DATASET_SET_EXTENT => set_extent c"H5Dset_extent_async",
        H5VL_DATASET_FLUSH => after_pending c"H5Dflush",
        _ => after_pending c"H5Drefresh",
    };
    match optional = H5VLdataset_optional {
        H5VL_NATIVE_DATASET_GET_OFFSET => answer_after_pending c"H5D",
        _ => after_pending c"H5D",
    };
}

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
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        make_dataset(obj, ApiCall::of(c"H5Dcreate_async", req), |under| {
            if let (true, Some(shared)) = (name.is_null(), under.container.shared.get()) {
                shared.may_free.store(true, Relaxed);
            }
            background::create_in_step(under, dcpl_id, || {
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
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        make_dataset(obj, ApiCall::of(c"H5Dopen_async", req), |under| {
            background::open_in_step(under, kind_of(loc_params), || {
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
        })
    }
}

/// Defines the function `$name` that reads or writes datasets. `$function` is that of the connector below.
macro_rules! transfer_function {
    ($name:ident, $operation:expr, $function:ident, $memory:ty) => {
        unsafe extern "C" fn $name(
            count: usize,
            dset: *mut *mut c_void,
            mem_type_id: *mut hid_t,
            mem_space_id: *mut hid_t,
            file_space_id: *mut hid_t,
            dxpl_id: hid_t,
            buf: *mut $memory,
            req: Req,
        ) -> herr_t {
            let arguments = Arguments {
                count,
                objects: dset,
                types: mem_type_id,
                memory: mem_space_id,
                file: file_space_id,
                list: dxpl_id,
                buffers: buf.cast(),
                req,
            };
            // SAFETY: the call passes HDF5's arguments on. A write only reads the buffers.
            unsafe {
                transfer($operation, arguments, |below, passed| {
                    let Arguments {
                        count,
                        objects,
                        types,
                        memory,
                        file,
                        list,
                        buffers,
                        req,
                    } = passed;
                    let buffers = buffers.cast();
                    match below {
                        Below::Native(native) => native.$name.map_or(FAIL, |call| {
                            call(count, objects, types, memory, file, list, buffers, req)
                        }),
                        Below::Other(under) => under.quietly(|| {
                            let (call, id) = (under.calls.$function, under.id);
                            call(count, objects, id, types, memory, file, list, buffers, req)
                        }),
                    }
                })
            }
        }
    };
}

transfer_function!(read, Operation::Read, H5VLdataset_read, *mut c_void);
transfer_function!(write, Operation::Write, H5VLdataset_write, *const c_void);

/// The arguments of a read or write of several datasets.
#[derive(Clone, Copy)]
struct Arguments {
    count: usize,
    objects: *mut *mut c_void,
    types: *mut hid_t,
    memory: *mut hid_t,
    file: *mut hid_t,
    list: hid_t,
    buffers: *mut *mut c_void,
    req: Req,
}

/// How a transfer goes on after its first checks.
enum Route {
    /// [`at_once`]: by the connector below.
    AtOnce,
    /// [`carry_out`] decides, with the memory of the buffers. In a file that processes share, a process with
    /// an error must still make the collective call.
    Decide(Result<Vec<Memory>>),
}

/// Reads or writes in the background, or by the connector below. `call` calls that connector.
///
/// # Safety
/// HDF5 has passed the arguments. Otherwise as for [`operate`].
unsafe fn transfer(
    operation: Operation,
    arguments: Arguments,
    call: impl Fn(Below<'_>, Arguments) -> herr_t,
) -> herr_t {
    let Arguments { count, req, .. } = arguments;
    if count == 0 {
        return SUCCEED;
    }
    // SAFETY: the caller guarantees this: each array has `count` entries. A wrapper is an address.
    unsafe {
        let transfer = DatasetCall {
            operation,
            datasets: slice::from_raw_parts(arguments.objects.cast::<&Wrapped>(), count),
            unders: &[],
            memory_types: slice::from_raw_parts(arguments.types, count),
            memory_spaces: slice::from_raw_parts(arguments.memory, count),
            file_spaces: slice::from_raw_parts(arguments.file, count),
            list: arguments.list,
            buffers: slice::from_raw_parts(arguments.buffers.cast::<usize>(), count),
            req,
            stored: &[],
        };
        let first = transfer.datasets[0];
        let is_parallel = first.container().is_parallel && !first.is_internal();
        let body = || {
            let memories = transfer.memories();
            if is_parallel || first.is_gone() {
                return Ok(Route::Decide(memories));
            }
            let memories = memories?;
            let is_at_once = background::goes_below_at_once(&transfer, &memories)?;
            Ok(if is_at_once {
                Route::AtOnce
            } else {
                Route::Decide(Ok(memories))
            })
        };
        let memories = match run_callback(first.library().hdf5, CALL, body) {
            Some(Route::Decide(memories)) => memories,
            Some(Route::AtOnce) => return at_once(&transfer, arguments, call),
            None => return FAIL,
        };
        let object: *const Wrapped = first;
        attempt(object.cast(), ApiCall::NONE, |first| {
            let mut unders = vec![first.clone()];
            for dataset in &transfer.datasets[1..] {
                let under = dataset.under();
                first.together_with(&under)?;
                unders.push(under);
            }
            let (memory_spaces, _own) = memory_spaces(&transfer, &unders);
            let transfer = DatasetCall {
                unders: &unders,
                memory_spaces: &memory_spaces,
                ..transfer
            };
            carry_out(&transfer, memories, arguments, call)
        })
    }
}

/// Returns the dataspaces of the memory of a call. Dataspaces of this connector, which the second
/// list owns, replace H5S_BLOCK.
///
/// # Safety
/// As for [`transfer`].
unsafe fn memory_spaces(call: &DatasetCall<'_>, unders: &[Under]) -> (Vec<hid_t>, Vec<OwnedId>) {
    let mut spaces = call.memory_spaces.to_vec();
    let mut own = Vec::new();
    for (at, space) in spaces.iter_mut().enumerate() {
        if *space == H5S_BLOCK
            // SAFETY: the caller guarantees this.
            && let Some(block) = unsafe { block_for(&unders[at], call.file_spaces[at]) }
        {
            *space = block.id;
            own.push(block);
        }
    }
    (spaces, own)
}

/// Makes the application's call of the connector below.
///
/// # Safety
/// As for [`transfer`]; `passed` are the arguments of HDF5.
unsafe fn at_once(
    transfer: &DatasetCall<'_>,
    mut passed: Arguments,
    call: impl Fn(Below<'_>, Arguments) -> herr_t,
) -> herr_t {
    let dataset = transfer.datasets[0];
    let mut object = dataset.object();
    passed.objects = &mut object;
    // SAFETY: the caller guarantees this.
    unsafe {
        let status = match dataset.container().native.get() {
            Some(Some(native)) => dataset
                .container()
                .in_call(|| call(Below::Native(native), passed)),
            _ => {
                let under = dataset.under();
                let status = under.container.in_call(|| call(under.below(), passed));
                Wrapped::wrap_request(passed.req, dataset.container());
                status
            }
        };
        if status < 0 && transfer.operation == Operation::Write {
            let under = dataset.under();
            under.run_callback(|| note_unfinished(&under));
        }
        status
    }
}

/// As [`transfer`], for a call that may continue in the background. `memories` is the result of
/// [`DatasetCall::memories`].
///
/// # Safety
/// As for [`at_once`].
unsafe fn carry_out(
    transfer: &DatasetCall<'_>,
    memories: Result<Vec<Memory>>,
    mut passed: Arguments,
    call: impl Fn(Below<'_>, Arguments) -> herr_t,
) -> Result<herr_t> {
    let (unders, req) = (transfer.unders, transfer.req);
    let first = &unders[0];
    let _quiet = Quiet::begin(first.library());
    // SAFETY: the caller guarantees this.
    unsafe {
        let Disposition::Below(mut below) = background::read_or_write(transfer, memories)? else {
            return Ok(SUCCEED);
        };
        if !first.container.is_parallel {
            refuse_unfinished(unders)?;
        }
        let (mut own, mut spaces, mut unused) = (Vec::new(), Vec::new(), 0u64);
        let mut types = transfer.memory_types.to_vec();
        let mut addresses = below
            .host
            .as_mut()
            .map_or(Vec::new(), HostBuffers::addresses);
        if below.failed.is_some() {
            // This process takes part without elements.
            for (under, element) in unders.iter().zip(&mut types) {
                if let Some(in_file) = type_of(under) {
                    *element = in_file.id;
                    own.push(in_file);
                }
                let space = nothing_of(under).ok_or_else(|| {
                    Error::invalid("HDF5 cannot copy the dataspace of the dataset")
                })?;
                spaces.push(space.id);
                own.push(space);
            }
            passed.types = types.as_mut_ptr();
            passed.memory = spaces.as_mut_ptr();
            passed.file = spaces.as_mut_ptr();
            addresses = vec![(&raw mut unused).cast(); unders.len()];
        }
        if !addresses.is_empty() {
            passed.buffers = addresses.as_mut_ptr();
            // The buffers end with this call, so the connector below must not continue after it.
            passed.req = NO_REQUEST;
        }
        if let Some(list) = below.list {
            passed.list = list.id;
            first.container.keep_list(list);
        }
        let mut objects: Vec<*mut c_void> = unders.iter().map(|under| under.object).collect();
        passed.objects = objects.as_mut_ptr();
        let status = first.container.in_call(|| call(first.below(), passed));
        let ended = below.end.finish();
        if let Some(error) = below.failed {
            return Err(background::took_part(error));
        }
        if status >= 0 {
            ended?;
        }
        match below.host {
            None => {
                Wrapped::wrap_request(req, &first.container);
            }
            Some(host) if status >= 0 && transfer.operation == Operation::Read => {
                host.copy_back()?;
            }
            Some(_) => {}
        }
        let may_note = unders.len() == 1 && !first.container.is_parallel;
        if status < 0 && transfer.operation == Operation::Write && may_note {
            note_unfinished(first)?;
        }
        Ok(status)
    }
}

/// Returns an error if HDF5 has not finished allocating the storage.
///
/// # Safety
/// The thread is inside a callback on these datasets.
unsafe fn refuse_unfinished(unders: &[Under]) -> Result<()> {
    if unfinished_storage::is_none() || unders.iter().any(|under| under.is_internal) {
        return Ok(());
    }
    for under in unders {
        // SAFETY: the caller guarantees this.
        let id = unsafe { TemporaryId::of(under, H5I_DATASET)? };
        // SAFETY: the thread is inside a call of this HDF5.
        let session = unsafe { Session::begin(under.library().hdf5) };
        unfinished_storage::refuse(&session, id.get())?;
    }
    Ok(())
}

/// Records that HDF5 has not finished the allocation of a dataset in a failed write.
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
    if unfinished_storage::has_stopped(&session) {
        library.keeping_errors(|| {
            // SAFETY: the caller guarantees this.
            let id = unsafe { TemporaryId::of(under, H5I_DATASET)? };
            unfinished_storage::note(&session, id.get())
        })
    } else {
        Ok(())
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
    unsafe { after(obj, api_call, true, call) }
}

/// As [`after_pending`], for a call that returns 0 or `HADDR_UNDEF` on failure, as for a dataset
/// without storage. It reports no failure of an earlier operation.
///
/// # Safety
/// As for [`operate`].
unsafe fn answer_after_pending(
    obj: *mut c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    unsafe { after(obj, api_call, false, call) }
}

/// Makes a call of the connector below after the pending operations on the dataset. An internal
/// call of this connector waits for none.
///
/// # Safety
/// As for [`operate`].
unsafe fn after(
    obj: *mut c_void,
    api_call: ApiCall,
    reports_failures: bool,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    unsafe {
        attempt(obj, api_call, |under| {
            let _quiet = Quiet::begin(under.library());
            let set = || object_access(under, H5I_DATASET);
            if !reports_failures {
                background::finish_unreported(under, set);
            } else if !under.is_internal {
                background::finish_conflicting(under, set)?;
            }
            Ok(under.container.in_call(|| call(under)))
        })
    }
}

/// Makes a dataset.
///
/// # Safety
/// As for [`make`].
unsafe fn make_dataset(
    object: *const c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller guarantees this.
    unsafe {
        let made = make(object, api_call, call);
        describe_together(made);
        made
    }
}

/// Describes a dataset in a call of all processes, if they read metadata only together. A later
/// transfer may be a call of one process.
///
/// # Safety
/// `dataset` is null or the wrapper of a dataset, and the thread is inside a callback that all processes make.
pub(crate) unsafe fn describe_together(dataset: *mut c_void) {
    if dataset.is_null() {
        return;
    }
    // SAFETY: the caller guarantees this.
    let wrapped = unsafe { Wrapped::of(dataset) };
    let shared = wrapped.container().shared.get();
    if let Some(shared) = shared.filter(|shared| shared.opening.reads_together) {
        let library = wrapped.library();
        let _quiet = Quiet::begin(library);
        // HDF5 transfers datasets that cannot be described.
        // SAFETY: the caller guarantees this.
        let _ =
            library.keeping_errors(|| unsafe { wrapped.describe_shared(&wrapped.under(), shared) });
    }
}

/// Changes the extent of a dataset, after the pending operations on it.
///
/// # Safety
/// As for [`operate`].
unsafe fn set_extent(
    obj: *mut c_void,
    api_call: ApiCall,
    call: impl FnOnce(&Under) -> herr_t,
) -> herr_t {
    // SAFETY: the caller guarantees this.
    unsafe {
        let status = after_pending(obj, api_call, |under| {
            background::extend_in_step(under, || call(under))
        });
        let dataset = Wrapped::of(obj);
        if let Some(shared) = dataset.container().shared.get() {
            let access = dataset.known_dataset_access();
            shared.extent_changed(access.map(|access| &access.key), true);
            describe_together(obj);
        }
        status
    }
}

unsafe extern "C" fn close_dataset(dset: *mut c_void, _dxpl_id: hid_t, req: Req) -> herr_t {
    let was_called = Rc::new(Cell::new(false));
    let called = Rc::clone(&was_called);
    let native = move |under: &Under, req: Req| {
        called.set(true);
        // SAFETY: HDF5 closes the dataset, now or in an earlier call that deferred the close.
        unsafe { (under.calls.H5VLdataset_close)(under.object, under.id, H5P_DEFAULT, req) }
    };
    // SAFETY: the call passes HDF5's arguments on.
    unsafe {
        let set = |under: &Under| object_access(under, H5I_DATASET);
        let api_call = ApiCall::of(background::CLOSE_DATASET, req);
        let under = Wrapped::of(dset).under();
        let status = close_and_report(dset, api_call, set, native, |_| Ok(()));
        if status < 0 && was_called.get() {
            // HDF5 frees a dataset even if its close fails.
            Wrapped::release(dset);
            if may_fail_later(&under, req) && !is_h5dclose() {
                // HDF5 (1.14.4, 2.0.0, 2.2.0) keeps the identifier of the freed object. It reads freed
                // memory when it iterates over its identifiers, as each close of a file does. So
                // this close succeeds, and the next flush or close of the file fails.
                let session = Session::begin(under.library().hdf5);
                let failure = session.failed("close the dataset");
                under.container.policy.failures.add(failure);
                return SUCCEED;
            }
            return status;
        }
        // No later call can report the failures.
        let is_last =
            req.is_null() && !under.is_internal && under.container.is_closed.load(Relaxed);
        if status >= 0 && is_last {
            let reported = under.run_callback(|| under.container.policy.failures.take());
            reported.map_or(FAIL, |()| status)
        } else {
            status
        }
    }
}

/// Returns whether a later call can report the failure of a close.
fn may_fail_later(under: &Under, req: Req) -> bool {
    let container = &under.container;
    req.is_null()
        && !under.is_internal
        && !container.is_parallel
        && !container.is_closed.load(Relaxed)
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
