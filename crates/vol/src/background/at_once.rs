//! Recognises calls that the connector below should carry out immediately: calls without an event
//! set, and transfers too small to gain from the background. The checks cost less than a small
//! transfer.

use penstock_engine::error::Result;
use penstock_engine::memory::Memory;
use penstock_engine::reach;
use penstock_sys::hdf5::H5S_ALL;
use penstock_sys::hdf5::connector::H5I_DATASET;

use super::dataset_call::DatasetCall;
use super::pending::{may_conflict_in, poll_oldest};
use crate::access_sets::DatasetAccess;
use crate::calling_library::Quiet;
use crate::dataspace::touched_by_some;
use crate::log::Execution;
use crate::temporary_id::TemporaryId;
use penstock_hdf5::transfer::{conflicts, nothing_is_pending, unfinished_storage};

/// Reason in the log why HDF5 carries out a transfer that is not worth a plan.
pub(super) const SMALL: &str = "transfers less than the option small";

/// Returns whether the connector below can carry out a call on one dataset immediately, because no
/// conflicting operation is pending. If it cannot, or if the answer would take longer,
/// [`read_or_write`](super::read_or_write) decides. `memories` is the result of
/// [`DatasetCall::memories`].
///
/// # Safety
/// As for [`read_or_write`](super::read_or_write).
pub(crate) unsafe fn goes_below_at_once(
    call: &DatasetCall<'_>,
    memories: &[Memory],
) -> Result<bool> {
    let [dataset] = call.datasets else {
        return Ok(false);
    };
    if dataset.is_internal() {
        return Ok(true);
    }
    if memories.iter().any(|memory| memory.context.is_some()) {
        return Ok(false);
    }
    let policy = call.policy();
    let is_alone = nothing_is_pending();
    if !is_alone {
        poll_oldest(dataset.library());
        if !unfinished_storage::is_none() {
            return Ok(false);
        }
    }
    let continues = call.continues();
    // SAFETY: the caller guarantees this.
    unsafe {
        let small = if continues && !policy.is_delayed() {
            small_transfer(call)
        } else {
            None
        };
        if continues && small.is_none() {
            return Ok(false);
        }
        let may_conflict = !is_alone && may_conflict_in(dataset.container());
        if may_conflict && !conflicts_with_nothing(call)? {
            return Ok(false);
        }
        if let (Some(elements), false) = (small, call.req.is_null()) {
            check_memory(call, 0, elements)?;
        }
    }
    if policy.settings.implicit {
        call.take_failures()?;
    }
    let why = if continues {
        SMALL
    } else {
        "called without an event set"
    };
    call.log(Execution::Sync, 0, why);
    Ok(true)
}

/// Returns the number of elements of a transfer that is too small to continue after the call.
/// Returns `None` if the transfer is not small, or if HDF5 does not return the number.
///
/// # Safety
/// As for [`goes_below_at_once`].
pub(super) unsafe fn small_transfer(call: &DatasetCall<'_>) -> Option<u64> {
    let limit = call.policy().small(!call.req.is_null());
    if limit == 0 {
        return None;
    }
    let library = call.datasets[0].library();
    // SAFETY: the caller guarantees this.
    unsafe {
        let element = call.datasets[0]
            .last_ids
            .size(library, call.memory_types[0])?;
        let elements = elements_of(call, 0)?;
        let is_small = elements.checked_mul(element)? < limit || is_part_of_chunk(call, elements);
        is_small.then_some(elements)
    }
}

/// Returns the number of elements that a call transfers of dataset `at`; `None` if HDF5 does not
/// return it.
///
/// # Safety
/// As for [`goes_below_at_once`].
unsafe fn elements_of(call: &DatasetCall<'_>, at: usize) -> Option<u64> {
    let dataset = call.datasets[at];
    let library = dataset.library();
    // SAFETY: the caller guarantees this; HDF5 checks the identifiers.
    unsafe {
        match (call.memory_spaces[at], call.file_spaces[at]) {
            (H5S_ALL, H5S_ALL) => dataset.elements(),
            (H5S_ALL, space) | (space, _) => {
                if !dataset.last_ids.is_dataspace(library, space) {
                    return None;
                }
                u64::try_from((library.hdf5.H5Sget_select_npoints)(space)).ok()
            }
        }
    }
}

/// Returns an error if a call with an event set would make HDF5 use unmapped host memory.
///
/// # Safety
/// As for [`goes_below_at_once`].
pub(super) unsafe fn check_host_memory(call: &DatasetCall<'_>, memories: &[Memory]) -> Result<()> {
    if call.req.is_null() {
        return Ok(());
    }
    for at in 0..call.buffers.len() {
        let is_on_gpu = memories.get(at).is_some_and(|own| own.context.is_some());
        // SAFETY: the caller guarantees this.
        let elements = unsafe { elements_of(call, at) };
        if let (Some(elements), false) = (elements, is_on_gpu) {
            // SAFETY: as above.
            unsafe { check_memory(call, at, elements)? };
        }
    }
    Ok(())
}

/// Returns whether a plain write fills no chunk. HDF5 collects such writes in its chunk cache, or
/// writes the part alone. The background would write the whole chunk once per call.
///
/// # Safety
/// As for [`goes_below_at_once`].
unsafe fn is_part_of_chunk(call: &DatasetCall<'_>, elements: u64) -> bool {
    // SAFETY: the caller guarantees this.
    call.req.is_null()
        && unsafe { access_of(call) }.is_ok_and(|access| access.is_part_of_chunk(elements))
}

/// Returns the properties for the access sets of the dataset.
///
/// # Safety
/// As for [`goes_below_at_once`].
unsafe fn access_of(call: &DatasetCall<'_>) -> Result<DatasetAccess> {
    let dataset = call.datasets[0];
    if let Some(known) = dataset.known_dataset_access() {
        return Ok(known.clone());
    }
    let under = dataset.under();
    let _quiet = Quiet::begin(dataset.library());
    // SAFETY: the caller guarantees this.
    unsafe {
        let id = TemporaryId::of(&under, H5I_DATASET)?;
        dataset.dataset_access(&under, &id)
    }
}

/// Returns an error if the memory of a transfer is not mapped. Using it would crash the process.
///
/// # Safety
/// As for [`goes_below_at_once`].
unsafe fn check_memory(call: &DatasetCall<'_>, at: usize, elements: u64) -> Result<()> {
    let (library, space) = (call.datasets[at].library(), call.memory_space(at));
    if elements == 0 {
        return Ok(());
    }
    // The program may have changed the datatype's size since an earlier transfer.
    // SAFETY: the caller guarantees this; HDF5 checks the identifier.
    let element = unsafe { (library.hdf5.H5Tget_size)(call.memory_types[at]) } as u64;
    let touched = match space {
        H5S_ALL => None,
        // SAFETY: the caller guarantees this.
        space => unsafe { touched_by_some(library, space, element) },
    };
    let touched = touched.unwrap_or(0..elements.saturating_mul(element));
    let first = call.buffers[at].wrapping_add(touched.start as usize);
    let length = (touched.end - touched.start) as usize;
    reach::check_quickly(first, length, call.use_of_memory())
}

/// Returns whether no pending operation must finish before HDF5 reads or writes the dataset.
///
/// # Safety
/// As for [`goes_below_at_once`].
unsafe fn conflicts_with_nothing(call: &DatasetCall<'_>) -> Result<bool> {
    // SAFETY: the caller guarantees this.
    let access = unsafe { access_of(call)? };
    let set = access.by_hdf5(call.kind_of_access());
    let before = conflicts::before(call.datasets[0].library().hdf5, &set);
    Ok(before.iter().all(|operation| operation.has_ended()))
}
