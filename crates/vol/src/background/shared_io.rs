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
use super::collective_step::{End, Step, finish_conflicting};
use super::dataset_call::DatasetCall;
use super::dataset_io::{
    BelowCall, Disposition, carry_out, host_buffers, leave_to_hdf5, plan_all, why_only_hdf5,
};
use crate::conversion::is_converted;
use crate::dataspace::{is_special, lengths_of, nothing_of};
use crate::log::Execution;
use crate::shared_file::{Alone, Before, Facts, SharedFile};
use crate::temporary_id::TemporaryId;
use crate::transfer_list::{independent, is_collective, read_transfer_list};
use crate::under::Under;
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
        if is_collective(library, call.list) {
            return collective(call, memories, shared);
        }
        if is_small_and_not_described(call, &memories, shared) {
            return Ok(Disposition::Below(together(call, memories, false, SMALL)));
        }
        let stored = describe_all(call, shared)?;
        match why_together(call, &stored, shared, false) {
            Some(why) => {
                allocates(call, &stored, shared, false);
                Ok(Disposition::Below(together(call, memories, false, &why)))
            }
            None => {
                let stored = &stored;
                alone(&DatasetCall { stored, ..*call }, memories?, shared)
            }
        }
    }
}

/// Carries out a collective transfer. This function alone decides when the processes wait for each
/// other in it:
///
/// 1. They *agree*: each learns whether another has failed, and whether the transfer of any continues
///    after its call. If one has failed, the call fails in all.
/// 2. The transfer follows: [`together`] by HDF5, or [`alone`].
/// 3. They *meet* if no transfer continues. So the call is complete for all when it returns, even if
///    it fails. MPI guarantees no order there, but the messages of its collective transfers impose
///    one, and programs rely on it to read or free what other processes have written. They also meet
///    after a write in which MPI-IO may write more than is selected.
///
/// A collective transfer follows earlier ones that continue in some process and that it may conflict
/// with: each process finishes its own before the agreement.
///
/// If a process transfers its own part in the call, and nothing conflicts, it agrees after the
/// transfer, in place of the meeting. Each process agrees once in any case, so it need not know which
/// of them do so later.
///
/// # Safety
/// As for [`read_or_write`].
unsafe fn collective(
    call: &DatasetCall<'_>,
    memories: Result<Vec<Memory>>,
    shared: &SharedFile,
) -> Result<Disposition> {
    // SAFETY: the caller guarantees this.
    unsafe {
        let stored = describe_all(call, shared);
        let step = Step::of(call);
        let before = step.finish_conflicting(call);
        let own = Facts {
            continues: call.continues(),
            ..Facts::default()
        };
        let stored = match stored {
            Ok(stored) => stored,
            Err(error) => {
                let failed = true;
                let _ = step.agree(Facts { failed, ..own }, before);
                return Err(error);
            }
        };
        if let Some(why) = why_together(call, &stored, shared, true) {
            let sieved = match call.operation {
                Operation::Read => Vec::new(),
                Operation::Write => sieved_files(&step.files),
            };
            let mut below = together(call, memories, !sieved.is_empty(), &why);
            let failed = below.failed.is_some() && !can_take_part(call);
            let together = true;
            let own = Facts {
                failed,
                together,
                ..own
            };
            let agreed = step.agree(own, before);
            if failed && let Some(error) = below.failed.take() {
                return Err(error);
            }
            let agreed = agreed?;
            allocates(call, &stored, shared, true);
            let end = if sieved.is_empty() {
                step.end(agreed)
            } else {
                End::meeting(&sieved)
            };
            return Ok(Disposition::Below(BelowCall { end, ..below }));
        }
        let facts = Facts { alone: true, ..own };
        let end = if own.continues || before != Before::Nothing {
            let agreed = step.agree(facts, before)?;
            step.end(agreed)
        } else {
            End::agreement(step, facts)
        };
        let stored = &stored;
        let call = DatasetCall { stored, ..*call };
        match alone(&call, memories?, shared)? {
            Disposition::Below(below) => Ok(Disposition::Below(BelowCall { end, ..below })),
            Disposition::Done => end.finish().map(|()| Disposition::Done),
        }
    }
}

/// Returns whether this process can take part in a call of HDF5 without elements.
///
/// # Safety
/// As for [`read_or_write`].
unsafe fn can_take_part(call: &DatasetCall<'_>) -> bool {
    // SAFETY: the caller guarantees this.
    let is_ready = |under: &Under| unsafe { nothing_of(under) }.is_some();
    call.unders.iter().all(is_ready)
}

/// Returns the reason if HDF5 carries out the call as the program requests.
fn why_together(
    call: &DatasetCall<'_>,
    stored: &[Arc<Planned<StoredDataset>>],
    shared: &SharedFile,
    is_collective: bool,
) -> Option<String> {
    let (way, wanted) = (
        (call.operation, is_collective),
        call.policy().settings.collective,
    );
    let mut whys = stored.iter().map(|it| shared.why_together(it, way, wanted));
    whys.find_map(|why| why)
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

/// Records that HDF5 will allocate the storage of datasets, in all processes or in this one. Their
/// descriptions in all handles are then invalid.
fn allocates(
    call: &DatasetCall<'_>,
    stored: &[Arc<Planned<StoredDataset>>],
    shared: &SharedFile,
    by_all: bool,
) {
    if call.operation == Operation::Read {
        return;
    }
    for (dataset, stored) in call.datasets.iter().zip(stored) {
        let has_storage = |stored: &StoredDataset| stored.is_independent(Operation::Write);
        if stored
            .as_ref()
            .as_ref()
            .is_ok_and(|stored| !has_storage(stored))
        {
            let access = dataset.known_dataset_access();
            shared.extent_changed(access.map(|access| &access.key), by_all);
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

/// Returns the files in which MPI-IO may write bytes outside the selection.
fn sieved_files(files: &[Arc<SharedFile>]) -> Vec<Arc<SharedFile>> {
    let sieved = files.iter().filter(|file| file.is_sieved());
    sieved.cloned().collect()
}

/// Makes HDF5 carry out a call as the program requests, together with the other processes. If this
/// process cannot provide its memory, passes what HDF5 refuses, or must report an earlier failure,
/// it takes part without elements. The call follows the transfers of this process that conflict with
/// it; if `in_files`, all of its transfers of the files.
///
/// # Safety
/// As for [`read_or_write`].
pub(super) unsafe fn together(
    call: &DatasetCall<'_>,
    memories: Result<Vec<Memory>>,
    in_files: bool,
    why: &str,
) -> BelowCall {
    let under = &call.unders[0];
    finish_conflicting(call, in_files);
    if call.continues() {
        call.log(Execution::Sync, 0, why);
    }
    let host = || {
        call.take_failures()?;
        // SAFETY: the caller guarantees this.
        unsafe {
            check_arguments(call)?;
            let memories = memories?;
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
        ..BelowCall::default()
    }
}

/// Returns an error for types, selections and memory that HDF5 refuses: it does so before it meets the other
/// processes, which then wait for this one.
///
/// # Safety
/// As for [`read_or_write`].
unsafe fn check_arguments(call: &DatasetCall<'_>) -> Result<()> {
    for (at, dataset) in call.datasets.iter().enumerate() {
        let library = dataset.library();
        // SAFETY: the caller guarantees this.
        if !unsafe { is_converted(&call.unders[at], call.operation, call.memory_types[at]) } {
            let cause = "HDF5 does not convert between the type in memory and that of the dataset";
            return Err(Error::invalid(cause)
                .remedy("pass the type of the dataset, or one to which HDF5 converts it"));
        }
        let spaces = [call.memory_space(at), call.file_spaces[at]];
        // SAFETY: the caller guarantees this; HDF5 checks the identifiers.
        let elements = spaces.map(|space| unsafe {
            match space {
                H5S_ALL => dataset.elements(),
                space if is_special(space) => None,
                space => library.keeping_errors(|| {
                    u64::try_from((library.hdf5.H5Sget_select_npoints)(space)).ok()
                }),
            }
        });
        let [Some(in_memory), Some(in_file)] = elements else {
            continue;
        };
        if in_memory != in_file {
            let cause = format!(
                "{in_memory} elements of the memory and {in_file} of the file are selected"
            );
            let remedy = "select as many elements of the memory as of the file";
            return Err(Error::invalid(cause).remedy(remedy));
        }
        // SAFETY: as above.
        let is_outside = |space: &hid_t| unsafe {
            !is_special(*space)
                && library.keeping_errors(|| (library.calls.H5Sselect_valid)(*space)) == 0
        };
        if spaces.iter().any(is_outside) {
            let cause = "a selection is not within the extent of its dataspace";
            let remedy = "select elements within the extent";
            return Err(Error::invalid(cause).remedy(remedy));
        }
        if in_memory > 0 && call.buffers[at] == 0 {
            let cause = format!("the memory of {in_memory} elements is null");
            return Err(Error::invalid(cause).remedy("pass memory for the selected elements"));
        }
    }
    Ok(())
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

/// Returns whether the call selects no element, of any dataset or in memory.
///
/// # Safety
/// As for [`read_or_write`].
unsafe fn selects_nothing(call: &DatasetCall<'_>) -> bool {
    let library = call.unders[0].library();
    let count = library.hdf5.H5Sget_select_npoints;
    // SAFETY: the caller guarantees this; HDF5 checks the identifier.
    let is_empty =
        |space| !is_special(space) && library.keeping_errors(|| unsafe { count(space) }) == 0;
    // HDF5 reports elements in memory that the file has none for.
    iter::zip(call.file_spaces, call.memory_spaces)
        .all(|(file, memory)| is_empty(*file) && (is_special(*memory) || is_empty(*memory)))
}

/// Adds to the error of a process that has taken part in a transfer without elements.
pub(crate) fn took_part(error: Error) -> Error {
    error.remedy("the other processes have transferred their parts")
}
