//! Calls that the connector below carries out at once, found by questions that cost less than a small transfer:
//! calls without an event set, and calls that transfer too little to gain from the background.

use penstock_engine::error::Result;
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_engine::reach;
use penstock_sys::hdf5::H5S_ALL;
use penstock_sys::hdf5::connector::H5I_DATASET;

use super::dataset_call::DatasetCall;
use super::pending::{comes_after_nothing, may_conflict, poll_oldest};
use crate::dataspace::touched_by_some;
use crate::log::Execution;
use crate::temporary_id::TemporaryId;
use penstock_hdf5::transfer::unfinished;

/// Whether the connector below can carry out a call on one dataset at once, because nothing is pending that the
/// call conflicts with. If not, or if finding out would take longer, [`read_or_write`](super::read_or_write)
/// has to decide. `memories` is the answer of [`DatasetCall::memories`].
///
/// # Safety
/// As for [`read_or_write`](super::read_or_write).
pub(crate) unsafe fn goes_below_at_once(
    call: &DatasetCall<'_>,
    memories: &[Memory],
) -> Result<bool> {
    let [under] = call.unders else {
        return Ok(false);
    };
    if under.is_internal {
        return Ok(true);
    }
    if memories.iter().any(|memory| memory.context.is_some()) {
        return Ok(false);
    }
    let (library, policy) = (under.library(), call.policy());
    poll_oldest(library);
    if !unfinished::is_none() {
        return Ok(false);
    }
    let continues = call.continues();
    // SAFETY: the caller guarantees this.
    unsafe {
        if continues {
            let small = match policy.is_delayed() {
                true => None,
                false => small_transfer(call),
            };
            match small {
                None => return Ok(false),
                // As an operation in the background does.
                Some(small) if !call.req.is_null() => check_memory(call, small)?,
                Some(_) => {}
            }
        }
        if may_conflict(under) && !conflicts_with_nothing(call)? {
            return Ok(false);
        }
    }
    if call.req.is_null() || call.operation == Operation::Read {
        // The call may depend on a write that has failed, and no later call may be able to report it.
        policy.failures.take()?;
    }
    let why = match continues {
        true => "transfers less than the option small",
        false => "called without an event set",
    };
    call.log(Execution::Sync, 0, why);
    Ok(true)
}

/// A transfer that is too small to continue after the call.
#[derive(Clone, Copy)]
struct Small {
    /// The size of an element in memory, in bytes.
    element: u64,
    bytes: u64,
}

/// Measures the transfer. `None` if it is not small, or if HDF5 does not tell.
///
/// # Safety
/// As for [`goes_below_at_once`].
unsafe fn small_transfer(call: &DatasetCall<'_>) -> Option<Small> {
    let limit = call.policy().small();
    if limit == 0 {
        return None;
    }
    let library = call.unders[0].library();
    // SAFETY: the caller guarantees this.
    unsafe {
        let element = call.size_of_element(0)?;
        let elements = match (call.memory_spaces[0], call.file_spaces[0]) {
            (H5S_ALL, H5S_ALL) => call.datasets[0].elements(&call.unders[0])?,
            (H5S_ALL, space) | (space, _) => {
                if !call.datasets[0].memory_ids.is_dataspace(library, space) {
                    return None;
                }
                u64::try_from((library.hdf5.H5Sget_select_npoints)(space)).ok()?
            }
        };
        let bytes = elements.checked_mul(element)?;
        (bytes < limit).then_some(Small { element, bytes })
    }
}

/// Returns an error if the memory of a transfer is not mapped: using it would end the process.
///
/// # Safety
/// As for [`goes_below_at_once`].
unsafe fn check_memory(call: &DatasetCall<'_>, small: Small) -> Result<()> {
    let (library, space) = (call.unders[0].library(), call.memory_space(0));
    let touched = match space {
        _ if small.bytes == 0 => return Ok(()),
        H5S_ALL => None,
        // SAFETY: the caller guarantees this.
        space => unsafe { touched_by_some(library, space, small.element) },
    };
    let touched = touched.unwrap_or(0..small.bytes);
    let first = call.buffers[0].wrapping_add(touched.start as usize);
    let length = (touched.end - touched.start) as usize;
    reach::check_quickly(first, length, call.use_of_memory())
}

/// Whether nothing is pending that must finish before HDF5 reads or writes the dataset.
///
/// # Safety
/// As for [`goes_below_at_once`].
unsafe fn conflicts_with_nothing(call: &DatasetCall<'_>) -> Result<bool> {
    let (dataset, under) = (call.datasets[0], &call.unders[0]);
    // SAFETY: the caller guarantees this.
    let access = match dataset.known_dataset_access() {
        Some(access) => access,
        None => unsafe {
            let id = TemporaryId::of(under, H5I_DATASET)?;
            dataset.dataset_access(under, &id)?;
            match dataset.known_dataset_access() {
                Some(access) => access,
                None => return Ok(false),
            }
        },
    };
    Ok(comes_after_nothing(
        under.library(),
        &access.by_hdf5(call.kind_of_access()),
    ))
}
