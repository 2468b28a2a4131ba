//! Reads and writes of datasets in files that the processes of an MPI program share.
//! [`shared_file`](crate::shared_file) says which of them HDF5 carries out.

use std::ffi::c_void;
use std::iter;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_sys::hdf5::connector::{H5I_DATASET, H5I_type_t};
use penstock_sys::hdf5::{H5D_CHUNKED, H5D_FILL_TIME_NEVER, H5S_ALL, herr_t, hid_t};

use super::at_once::{SMALL, check_host_memory, small_transfer};
use super::closing::finish_in_shared_file;
use super::dataset_call::DatasetCall;
use super::dataset_io::{
    BelowCall, Disposition, carry_out, host_buffers, leave_to_hdf5, plan_all, why_only_hdf5,
};
use super::pending::conflicting_with;
use crate::dataspace::{is_special, lengths_of};
use crate::log::Execution;
use crate::shared_file::{Alone, SharedFile};
use crate::temporary_id::TemporaryId;
use crate::transfer_list::{independent, is_collective, read_transfer_list};
use crate::under::Under;
use penstock_hdf5::transfer::conflicts::{AccessSet, Pending};
use penstock_hdf5::transfer::{Planned, Refused, StoredDataset};

/// As [`read_or_write`](super::read_or_write), for a call on datasets of a shared file. A process
/// with an error still makes the collective calls.
///
/// # Safety
/// As for [`read_or_write`](super::read_or_write).
pub(super) unsafe fn read_or_write(
    call: &DatasetCall<'_>,
    memories: Result<Vec<Memory>>,
    shared: &SharedFile,
) -> Result<Disposition> {
    let library = call.unders[0].library();
    // SAFETY: the caller guarantees this.
    unsafe {
        let way = (call.operation, is_collective(library, call.list));
        if way.1 {
            meet_before(call);
        }
        if !way.1 && is_small_and_not_described(call, &memories, shared) {
            let below = together(call, memories, &[], SMALL);
            return Ok(Disposition::Below(below));
        }
        let stored = describe_all(call, shared).inspect_err(|_| drop(meet_at_end(call, way.1)))?;
        let wanted = call.policy().settings.collective;
        let mut whys = stored
            .iter()
            .map(|stored| shared.why_together(stored, way, wanted));
        match whys.find_map(|why| why) {
            Some(why) => {
                if call.operation == Operation::Write {
                    allocates(call, &stored, shared);
                }
                let alone_in = match way {
                    (Operation::Write, true) => sieved_files(call),
                    _ => Vec::new(),
                };
                let below = together(call, memories, &alone_in, &why);
                Ok(Disposition::Below(below))
            }
            None => {
                let meeting = meet_at_end(call, way.1);
                let call = DatasetCall {
                    stored: &stored,
                    ..*call
                };
                Ok(match alone(&call, memories?, shared)? {
                    Disposition::Below(below) => Disposition::Below(BelowCall {
                        alone: meeting,
                        ..below
                    }),
                    done => done,
                })
            }
        }
    }
}

/// Returns whether HDF5 carries out this process's part, for any dataset. Listing the chunks, which
/// takes long after a change of the extent, would then be useless.
///
/// # Safety
/// As for [`read_or_write`].
unsafe fn is_small_and_not_described(
    call: &DatasetCall<'_>,
    memories: &Result<Vec<Memory>>,
    shared: &SharedFile,
) -> bool {
    let is_on_host = |memories: &Vec<Memory>| memories.iter().all(|it| it.context.is_none());
    call.datasets.len() == 1
        && call.datasets[0].described(shared).is_none()
        && memories.as_ref().is_ok_and(is_on_host)
        // SAFETY: the caller guarantees this.
        && unsafe { small_transfer(call).is_some() }
}

/// Records that HDF5 will allocate the storage of datasets, which invalidates their descriptions in
/// all handles.
fn allocates(call: &DatasetCall<'_>, stored: &[Arc<Planned<StoredDataset>>], shared: &SharedFile) {
    for (dataset, stored) in call.datasets.iter().zip(stored) {
        let has_storage = |stored: &StoredDataset| stored.is_independent(Operation::Write);
        if stored
            .as_ref()
            .as_ref()
            .is_ok_and(|stored| !has_storage(stored))
        {
            shared.extent_changed(dataset.known_dataset_access().map(|access| &access.key));
        }
    }
}

/// Describes the datasets of a call.
///
/// # Safety
/// As for [`read_or_write`].
unsafe fn describe_all(
    call: &DatasetCall<'_>,
    shared: &SharedFile,
) -> Result<Vec<Arc<Planned<StoredDataset>>>> {
    let of = |(dataset, under): (&&crate::wrapped::Wrapped, &crate::under::Under)| {
        let own = under.container.shared.get();
        if own.is_some_and(|own| std::ptr::eq(&**own, shared)) {
            // SAFETY: the caller guarantees this.
            unsafe { dataset.stored(under, shared) }
        } else {
            let why = "the datasets are in several files";
            Ok(Arc::new(Err(Refused(why.to_owned()))))
        }
    };
    call.datasets.iter().zip(call.unders).map(of).collect()
}

/// Returns the shared files of a call, in the order of its datasets.
fn shared_files(call: &DatasetCall<'_>) -> Vec<Arc<SharedFile>> {
    let mut files: Vec<Arc<SharedFile>> = Vec::new();
    let shared = |under: &'_ Under| under.container.shared.get().cloned();
    for file in call.unders.iter().filter_map(shared) {
        if !files.iter().any(|other| Arc::ptr_eq(other, &file)) {
            files.push(file);
        }
    }
    files
}

/// Returns the shared files of a call in which MPI-IO may write bytes outside the selection.
fn sieved_files(call: &DatasetCall<'_>) -> Vec<Arc<SharedFile>> {
    let mut files = shared_files(call);
    files.retain(|file| file.is_sieved());
    files
}

/// Returns whether a call is complete when it returns.
fn is_plain(call: &DatasetCall<'_>) -> bool {
    call.req.is_null() && !call.policy().settings.implicit
}

/// Makes the processes meet at the end of a collective call that is complete when it returns, even
/// if it fails. MPI guarantees no order there. But the messages of its collective transfers impose
/// one, and programs rely on it to read or free what other processes have written.
fn meet_at_end(call: &DatasetCall<'_>, is_collective: bool) -> Vec<Alone> {
    if is_collective && is_plain(call) {
        shared_files(call).iter().map(Alone::at_end).collect()
    } else {
        Vec::new()
    }
}

/// Makes the processes meet before a collective call on elements that earlier calls still transfer.
/// MPI guarantees no order without a barrier of the program, but programs rely on the order that
/// collective transfers of MPI-IO impose.
fn meet_before(call: &DatasetCall<'_>) {
    for file in shared_files(call) {
        let finish = || finish_conflicting(call, true);
        file.meet_before(call.operation, !is_plain(call), finish);
    }
}

/// Finishes this process's transfers that conflict with the call, in its datasets or in their
/// files.
fn finish_conflicting(call: &DatasetCall<'_>, in_files: bool) {
    for (dataset, under) in call.datasets.iter().zip(call.unders) {
        let set = match (dataset.known_dataset_access(), under.container.shared.get()) {
            (Some(access), _) if in_files => AccessSet::File(access.key.file),
            (Some(access), _) => access.by_hdf5(call.kind_of_access()),
            (None, Some(shared)) => AccessSet::File(shared.key),
            (None, None) => continue,
        };
        conflicting_with(under, &set)
            .into_iter()
            .for_each(Pending::finish);
    }
}

/// Makes HDF5 carry out a call as the program requests, together with the other processes. If this
/// process cannot provide its memory, or must report an earlier failure, it takes part without
/// elements. During the call, no process transfers elements of the files `alone_in`, which are the
/// same in all processes.
///
/// # Safety
/// As for [`read_or_write`].
pub(super) unsafe fn together(
    call: &DatasetCall<'_>,
    memories: Result<Vec<Memory>>,
    alone_in: &[Arc<SharedFile>],
    why: &str,
) -> BelowCall {
    let under = &call.unders[0];
    finish_conflicting(call, !alone_in.is_empty());
    if call.continues() {
        call.log(Execution::Sync, 0, why);
    }
    let host = || {
        call.take_failures()?;
        let memories = memories?;
        // SAFETY: the caller guarantees this.
        unsafe {
            check_host_memory(call, &memories)?;
            if memories.iter().all(|memory| memory.context.is_none()) {
                return Ok(None);
            }
            let stream = read_transfer_list(under.library(), call.list)?.stream;
            host_buffers(call, &memories, stream)
        }
    };
    let (host, failed) = match host() {
        Ok(host) => (host, None),
        Err(error) => (None, Some(error)),
    };
    BelowCall {
        host,
        failed,
        alone: alone_in.iter().map(Alone::begin).collect(),
        list: None,
    }
}

/// Opens an object that may be a dataset. If the open makes HDF5 allocate storage that a single
/// process has left out, no process transfers elements of the file during the call: HDF5 may place the
/// storage between other datasets, and write fill values of several chunks together. An open is a
/// collective call only if it allocates.
///
/// # Safety
/// The thread is inside a callback on `under`, an object of this kind.
pub(crate) unsafe fn alone_if_it_allocates(
    under: &Under,
    kind: H5I_type_t,
    open: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let shared = under.container.shared.get();
    let Some(shared) = shared.filter(|shared| shared.is_sieved() && shared.may_fill_gaps()) else {
        return open();
    };
    // The processes meet in HDF5 before it writes fill values.
    finish_in_shared_file(under);
    // SAFETY: the caller guarantees this.
    let end = || unsafe { end_of_file(under, kind) };
    let before = end();
    let opened = open();
    if end() != before {
        shared.meet();
    }
    opened
}

/// Returns the end of the allocated space in the file of an object; `None` if HDF5 does not return
/// it.
///
/// # Safety
/// As for [`alone_if_it_allocates`].
unsafe fn end_of_file(under: &Under, kind: H5I_type_t) -> Option<u64> {
    let library = under.library();
    let mut end = 0;
    // SAFETY: the caller guarantees this; HDF5 checks the identifiers, and `end` receives the answer.
    unsafe {
        let object = TemporaryId::of(under, kind).ok()?;
        library.keeping_errors(|| {
            let file = (library.hdf5.H5Iget_file_id)(object.get());
            let status = (library.calls.H5Fget_eoa)(file, &mut end);
            (library.hdf5.H5Fclose)(file);
            (status >= 0).then_some(end)
        })
    }
}

/// Waits until no process transfers elements of the file, if HDF5 will write fill values of several
/// chunks together.
///
/// # Safety
/// The thread is inside a callback on `under`, which all processes make with a list of the same contents.
pub(crate) unsafe fn alone_to_fill(under: &Under, creation_list: hid_t) -> Option<Alone> {
    let shared = under.container.shared.get();
    let shared = shared.filter(|shared| shared.is_sieved())?;
    let (library, mut time) = (under.library(), H5D_FILL_TIME_NEVER);
    // SAFETY: HDF5 checks the identifier, and `time` receives the answer.
    let (is_chunked, filters) = library.keeping_errors(|| unsafe {
        (library.hdf5.H5Pget_fill_time)(creation_list, &mut time);
        let is_chunked = (library.hdf5.H5Pget_layout)(creation_list) == H5D_CHUNKED;
        (is_chunked, (library.hdf5.H5Pget_nfilters)(creation_list))
    });
    // HDF5 writes filtered chunks at any fill time.
    (is_chunked && (time != H5D_FILL_TIME_NEVER || filters != 0)).then(|| {
        finish_in_shared_file(under);
        Alone::begin(shared)
    })
}

/// Changes the extent of a dataset. As for [`alone_to_fill`]; also, no process continues with
/// storage that another process still writes.
///
/// # Safety
/// The thread is inside a callback on this dataset, which all processes make.
pub(crate) unsafe fn extend_alone(under: &Under, extend: impl FnOnce() -> herr_t) -> herr_t {
    let library = under.library();
    let Some(shared) = under.container.shared.get() else {
        return extend();
    };
    // SAFETY: the caller guarantees this; HDF5 checks the identifiers.
    unsafe {
        let Ok(dataset) = TemporaryId::of(under, H5I_DATASET) else {
            return extend();
        };
        let list = library.keeping_errors(|| (library.hdf5.H5Dget_create_plist)(dataset.get()));
        let alone = alone_to_fill(under, list);
        library.keeping_errors(|| (library.hdf5.H5Pclose)(list));
        if alone.is_some() {
            return extend();
        }
        let before = lengths_of(under);
        let status = extend();
        let shrinks = |old: &[u64], new: &[u64]| iter::zip(old, new).any(|(old, new)| new < old);
        if let (Some(before), Some(after)) = (before, lengths_of(under))
            && shrinks(&before, &after)
        {
            shared.meet();
        }
        status
    }
}

/// Carries out this process's part alone: by the engine, or by HDF5 with an independent list.
///
/// # Safety
/// As for [`read_or_write`].
unsafe fn alone(
    call: &DatasetCall<'_>,
    mut memories: Vec<Memory>,
    shared: &SharedFile,
) -> Result<Disposition> {
    let library = call.unders[0].library();
    memories.resize(call.buffers.len(), Memory::HOST);
    let is_on_gpu = memories.iter().any(|memory| memory.context.is_some());
    // SAFETY: the caller guarantees this.
    unsafe {
        if selects_nothing(call) {
            call.take_failures()?;
            call.log(Execution::Sync, 0, "nothing is selected");
            return Ok(Disposition::Done);
        }
        let independent = is_collective(library, call.list)
            .then(|| independent(library, call.list))
            .transpose()?;
        let list = independent.as_ref().map_or(call.list, |list| list.id);
        let read = read_transfer_list(library, list)?;
        let call = &DatasetCall { list, ..*call };
        let by_hdf5 = |list, why: &str| {
            check_host_memory(call, &memories)?;
            let below = leave_to_hdf5(call, &memories, read.stream, Some(why))?;
            Ok(Disposition::Below(BelowCall { list, ..below }))
        };
        let why_file = || {
            let why = "this process cannot open the file a second time";
            shared.file.is_none().then_some(why)
        };
        if let Some(why) = why_only_hdf5(call, read.is_plain, why_file) {
            return by_hdf5(independent, why);
        }
        let is_small = call.datasets.len() == 1 && small_transfer(call).is_some();
        if is_small && !is_on_gpu {
            return by_hdf5(independent, SMALL);
        }
        let plans = match plan_all(call, &memories)? {
            Ok(plans) => plans,
            Err(Refused(why)) => return by_hdf5(independent, &why),
        };
        call.take_failures()?;
        carry_out(call, plans, read.stream)?;
    }
    Ok(Disposition::Done)
}

/// Returns whether the call selects no element of any dataset.
///
/// # Safety
/// As for [`read_or_write`].
unsafe fn selects_nothing(call: &DatasetCall<'_>) -> bool {
    let library = call.unders[0].library();
    call.file_spaces.iter().all(|space| {
        // SAFETY: the caller guarantees this; HDF5 checks the identifier.
        *space != H5S_ALL
            && !is_special(*space)
            && library.keeping_errors(|| unsafe { (library.hdf5.H5Sget_select_npoints)(*space) })
                == 0
    })
}

/// Adds to the error of a process that has taken part in a transfer without elements.
pub(crate) fn took_part(error: Error) -> Error {
    error.remedy("the other processes have transferred their parts")
}
