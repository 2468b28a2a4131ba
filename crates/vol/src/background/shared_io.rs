//! Reads and writes of datasets in files that the processes of an MPI program share.
//! [`protocol`](crate::protocol) says which of them HDF5 carries out.

use std::iter;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_sys::hdf5::connector::{H5I_DATASET, H5I_type_t};
use penstock_sys::hdf5::{H5D_CHUNKED, H5D_FILL_TIME_NEVER, H5S_ALL, herr_t, hid_t};

use super::at_once::{SMALL, check_host_memory, small_transfer};
use super::collective_step::{End, finish, in_step};
use super::dataset_call::DatasetCall;
use super::dataset_io::{
    BelowCall, Disposition, carry_out, host_buffers, leave_to_hdf5, plan_all, why_only_hdf5,
};
use crate::conversion::is_converted;
use crate::dataspace::{is_special, lengths_of, nothing_of};
use crate::log::Execution;
use crate::protocol::{After, By, Call, Elements, Finish, plan};
use crate::shared_file::{Facts, SharedFile};
use crate::temporary_id::TemporaryId;
use crate::transfer_list::{independent, is_collective, read_transfer_list};
use crate::under::Under;
use penstock_hdf5::transfer::{Planned, Refused, StoredDataset};

/// As [`read_or_write`](super::read_or_write), for a call on datasets of a shared file, which
/// [`protocol`](crate::protocol) plans. In a collective call, a process with an error still agrees, once.
///
/// # Safety
/// As for [`read_or_write`](super::read_or_write).
pub(super) unsafe fn read_or_write(
    call: &DatasetCall<'_>,
    memories: Result<Vec<Memory>>,
    shared: &Arc<SharedFile>,
) -> Result<Disposition> {
    let under = &call.unders[0];
    // SAFETY: the caller guarantees this.
    unsafe {
        let is_collective = is_collective(under.library(), call.list);
        if !is_collective && is_small_and_not_described(call, &memories, shared) {
            let below = together(call, memories, Finish::Conflicting, SMALL);
            return Ok(Disposition::Below(below));
        }
        let stored = describe_all(call, shared);
        if stored.is_err() && is_collective {
            let _ = shared.agree(Facts::FAILED);
        }
        let stored = stored?;
        let wanted = call.policy().settings.collective;
        let each = stored
            .iter()
            .map(|it| shared.elements(it, call.operation, wanted));
        let (elements, why) = each.max().unwrap_or((Elements::Hdf5s, ""));
        let of_call = if is_collective {
            Call::Collective(call.operation, elements)
        } else {
            Call::Independent(elements)
        };
        let plan = plan(of_call, shared.state());
        let by = match plan.by {
            By::Hdf5 => Facts::BY_HDF5,
            By::EachProcess => Facts::BY_EACH,
        };
        let continues = call.continues() && plan.after == After::UnlessContinues;
        let own = by.add_if(continues, Facts::CONTINUES);
        if plan.by == By::Hdf5 {
            let mut below = together(call, memories, plan.finishes, why);
            let cannot_take_part = || call.unders.iter().any(|under| nothing_of(under).is_none());
            let failed = below.failed.is_some() && cannot_take_part();
            let end = End::begin(under, shared, plan, own.add_if(failed, Facts::FAILED));
            if failed && let Some(error) = below.failed.take() {
                return Err(error);
            }
            let end = end?;
            allocates(call, &stored, shared, is_collective);
            return Ok(Disposition::Below(BelowCall { end, ..below }));
        }
        finish(call, plan.finishes);
        let end = End::begin(under, shared, plan, own)?;
        let stored = &stored;
        let call = DatasetCall { stored, ..*call };
        match alone(&call, memories?, shared)? {
            Disposition::Below(below) => Ok(Disposition::Below(BelowCall { end, ..below })),
            Disposition::Done => end.finish().map(|()| Disposition::Done),
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

/// Makes HDF5 carry out a call as the program requests, together with the other processes. If this
/// process cannot provide its memory, passes what HDF5 refuses, or must report an earlier failure,
/// it takes part without elements.
///
/// # Safety
/// As for [`read_or_write`].
pub(super) unsafe fn together(
    call: &DatasetCall<'_>,
    memories: Result<Vec<Memory>>,
    finishes: Finish,
    why: &str,
) -> BelowCall {
    let under = &call.unders[0];
    finish(call, finishes);
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

/// Opens an object that may be a dataset.
///
/// # Safety
/// The thread is inside a callback on `under`, an object of this kind.
pub(crate) unsafe fn open_in_step<T>(
    under: &Under,
    kind: H5I_type_t,
    open: impl FnOnce() -> T,
) -> T {
    // SAFETY: the caller guarantees this.
    let end = || unsafe { end_of_file(under, kind) }.map(|end| vec![end]);
    in_step(under, Call::Open, end, open)
}

/// Returns the end of the allocated space in the file of an object; `None` if HDF5 does not return
/// it.
///
/// # Safety
/// As for [`open_in_step`].
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

/// Creates a dataset.
///
/// # Safety
/// The thread is inside a callback on `under`, which all processes make with a list of the same contents.
pub(crate) unsafe fn create_in_step<T>(
    under: &Under,
    creation_list: hid_t,
    create: impl FnOnce() -> T,
) -> T {
    // SAFETY: the caller guarantees this.
    let fills = under.container.shared.get().is_some() && unsafe { fills(under, creation_list) };
    in_step(under, Call::Allocate { fills }, || None, create)
}

/// Changes the extent of a dataset.
///
/// # Safety
/// The thread is inside a callback on this dataset, which all processes make.
pub(crate) unsafe fn extend_in_step(under: &Under, extend: impl FnOnce() -> herr_t) -> herr_t {
    let library = under.library();
    if under.container.shared.get().is_none() {
        return extend();
    }
    // SAFETY: the caller guarantees this; HDF5 checks the identifiers.
    unsafe {
        let Ok(dataset) = TemporaryId::of(under, H5I_DATASET) else {
            return extend();
        };
        let list = library.keeping_errors(|| (library.hdf5.H5Dget_create_plist)(dataset.get()));
        let fills = fills(under, list);
        library.keeping_errors(|| (library.hdf5.H5Pclose)(list));
        let lengths = || lengths_of(under);
        in_step(under, Call::Allocate { fills }, lengths, extend)
    }
}

/// Returns whether HDF5 writes fill values of several chunks together when it allocates their storage.
///
/// # Safety
/// The thread is inside a callback on `under`.
unsafe fn fills(under: &Under, creation_list: hid_t) -> bool {
    let (library, mut time) = (under.library(), H5D_FILL_TIME_NEVER);
    // HDF5 writes filtered chunks at any fill time.
    // SAFETY: HDF5 checks the identifier, and `time` receives the answer.
    library.keeping_errors(|| unsafe {
        (library.hdf5.H5Pget_fill_time)(creation_list, &mut time);
        (library.hdf5.H5Pget_layout)(creation_list) == H5D_CHUNKED
            && (time != H5D_FILL_TIME_NEVER || (library.hdf5.H5Pget_nfilters)(creation_list) != 0)
    })
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
