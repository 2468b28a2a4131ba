//! Reads and writes of datasets by the engine, or a decision to leave them to HDF5.

use std::ops::Range;
use std::sync::Arc;

use penstock_array::MemorySize;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_engine::{Stream, refuse_fork};
use penstock_sys::hdf5::H5S_ALL;

use super::collective_step::End;
use super::dataset_call::DatasetCall;
use super::dataset_plan::{DatasetPlan, plan};
use super::pending::{add_pending, finish_when_exiting, may_conflict, poll_oldest};
use super::shared_io;
use super::start::{Continuing, start};
use crate::dataspace::{is_special, shifted_to_first, touched_bytes};
use crate::host_buffers::{ElementsApart, HostBuffers, Touched, refuse_pointers};
use crate::log::Execution;
use crate::operation::{AsyncOperation, Transfers, begin_after};
use crate::owned_id::OwnedId;
use crate::policy::StartsAt;
use crate::protocol::Finish;
use crate::temporary_id::TemporaryId;
use crate::transfer_list::read_transfer_list;
use crate::wrapped::Wrapped;
use penstock_hdf5::dataset::dataspace;
use penstock_hdf5::library::Session;
use penstock_hdf5::transfer::conflicts::{self, AccessSet};
use penstock_hdf5::transfer::{Planned, Refused, rewritten_blocks};

/// How a call is carried out.
pub(crate) enum Disposition {
    /// By the engine: the call is complete, or has a request.
    Done,
    /// By the connector below.
    Below(BelowCall),
}

/// Differences between the call of the connector below and that of the application.
#[derive(Default)]
pub(crate) struct BelowCall {
    /// Buffers in host memory.
    pub(crate) host: Option<HostBuffers>,
    /// A transfer property list that replaces that of the application.
    pub(crate) list: Option<OwnedId>,
    /// Reason why this process takes part in a collective call without elements.
    pub(crate) failed: Option<Error>,
    /// What follows the call, in a file that processes share.
    pub(crate) end: End,
}

/// Carries out a call, or returns how the caller must do so. All operations that conflict with the
/// call have finished by then. `memories` is the result of [`DatasetCall::memories`].
///
/// # Safety
/// The thread is inside the callback, and HDF5 has passed these arguments.
pub(crate) unsafe fn read_or_write(
    call: &DatasetCall<'_>,
    memories: Result<Vec<Memory>>,
) -> Result<Disposition> {
    let first = &call.unders[0];
    if first.is_internal {
        return Ok(Disposition::Below(BelowCall::default()));
    }
    if first.container.is_parallel {
        poll_oldest(first.library());
        let why = first.container.why_hdf5s.get().map(String::as_str);
        let why = why.unwrap_or("the processes of an MPI program share the file");
        // SAFETY: the caller guarantees this.
        return unsafe {
            match first.container.shared.get() {
                Some(shared) => shared_io::read_or_write(call, memories, shared),
                None => {
                    let below = shared_io::together(call, memories, Finish::Conflicting, why);
                    Ok(Disposition::Below(below))
                }
            }
        };
    }
    let mut memories = memories?;
    poll_oldest(first.library());
    memories.resize(call.buffers.len(), Memory::HOST);
    let is_on_gpu = memories.iter().any(|memory| memory.context.is_some());
    // SAFETY: the caller guarantees this.
    unsafe {
        if !call.continues() {
            wait_before_hdf5(call)?;
            call.take_failures()?;
            call.log(Execution::Sync, 0, "called without an event set");
            if !is_on_gpu {
                return Ok(Disposition::Below(BelowCall::default()));
            }
        }
        let list = read_transfer_list(first.library(), call.list)?;
        let below = |why: &str| {
            let why = call.continues().then_some(why);
            leave_to_hdf5(call, &memories, list.stream, why).map(Disposition::Below)
        };
        let why_file = || {
            let why = "the connector below does not store in HDF5's own files";
            (!first.ends_in_native()).then_some(why)
        };
        if let Some(why) = why_only_hdf5(call, list.is_plain, why_file) {
            return below(why);
        }
        let plans = match plan_all(call, &memories)? {
            Ok(plans) => plans,
            Err(Refused(why)) => return below(&why),
        };
        call.take_failures()?;
        carry_out(call, plans, list.stream)?;
    }
    Ok(Disposition::Done)
}

/// Carries out planned transfers. Waits for those that do not continue after the call.
///
/// # Safety
/// As for [`read_or_write`].
pub(super) unsafe fn carry_out(
    call: &DatasetCall<'_>,
    plans: Vec<(DatasetPlan, AccessSet)>,
    stream: Option<Stream>,
) -> Result<()> {
    let mut running = Transfers::default();
    // SAFETY: the caller guarantees this.
    match unsafe { start(call, plans, stream, &mut running) } {
        Ok(Some(continuing)) => {
            // SAFETY: as above.
            unsafe { add_operation(call, continuing) };
            Ok(())
        }
        Ok(None) => running.finish(),
        Err(error) => {
            let _ = running.finish();
            Err(error)
        }
    }
}

/// Plans the transfer of each dataset, after all operations that conflict with it. Returns the
/// reason if only HDF5 can carry out the call.
///
/// # Safety
/// As for [`read_or_write`].
pub(super) unsafe fn plan_all(
    call: &DatasetCall<'_>,
    memories: &[Memory],
) -> Result<Planned<Vec<(DatasetPlan, AccessSet)>>> {
    // SAFETY: the caller guarantees this.
    let sets = unsafe { call.access_sets()? };
    let (ids, mut sets): (Vec<TemporaryId>, Vec<AccessSet>) = sets.into_iter().unzip();
    if overlap(&sets) {
        let why = "the call touches the same elements twice";
        return Ok(Err(Refused(why.to_owned())));
    }
    let hdf5 = call.unders[0].library().hdf5;
    let mut waited = 0;
    for set in &sets {
        waited += conflicts::finish_before(hdf5, set);
    }
    let mut plans = Vec::with_capacity(sets.len());
    for (at, (id, set)) in ids.into_iter().zip(&mut sets).enumerate() {
        // SAFETY: the caller guarantees this.
        let plan = match unsafe { plan(call, at, id, &memories[at])? } {
            Ok(plan) => plan,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Some(block) = rewritten_blocks(&plan.prepared) {
            *set = set.clone().of_blocks(block);
            waited += conflicts::finish_before(hdf5, set);
        }
        plans.push(plan);
    }
    if overlap(&sets) {
        let why = "the call touches the same blocks of a dataset twice";
        return Ok(Err(Refused(why.to_owned())));
    }
    if waited > 0 && call.continues() {
        let why = "came after pending operations that it conflicts with";
        call.log(Execution::Async, 0, why);
    }
    Ok(Ok(plans.into_iter().zip(sets).collect()))
}

/// Returns whether two of the access sets contain the same elements.
fn overlap(sets: &[AccessSet]) -> bool {
    let overlaps = |(at, set): (usize, &AccessSet)| {
        let is_same = |other: &AccessSet| other.is_elements() && set.conflicts(other);
        set.is_elements() && sets[..at].iter().any(is_same)
    };
    sets.iter().enumerate().any(overlaps)
}

/// Waits for the operations that must finish before HDF5 carries out the call.
///
/// # Safety
/// As for [`read_or_write`].
unsafe fn wait_before_hdf5(call: &DatasetCall<'_>) -> Result<()> {
    if call.unders.iter().any(may_conflict) {
        // SAFETY: the caller guarantees this.
        for (_, set) in unsafe { call.access_sets()? } {
            conflicts::finish_before(call.unders[0].library().hdf5, &set.by_hdf5());
        }
    }
    Ok(())
}

/// Leaves a call to HDF5, after the operations that must finish before it. `why` is for the log.
///
/// # Safety
/// As for [`read_or_write`].
pub(super) unsafe fn leave_to_hdf5(
    call: &DatasetCall<'_>,
    memories: &[Memory],
    stream: Option<Stream>,
    why: Option<&str>,
) -> Result<BelowCall> {
    // SAFETY: the caller guarantees this.
    unsafe {
        wait_before_hdf5(call)?;
        call.take_failures()?;
        if let Some(why) = why {
            call.log(Execution::Sync, 0, why);
        }
        Ok(BelowCall {
            host: host_buffers(call, memories, stream)?,
            ..BelowCall::default()
        })
    }
}

/// Returns the reason if only HDF5 can carry out the call. `why_file` returns the reason if only
/// HDF5 can access the file.
pub(super) fn why_only_hdf5(
    call: &DatasetCall<'_>,
    is_plain: bool,
    why_file: impl FnOnce() -> Option<&'static str>,
) -> Option<&'static str> {
    if refuse_fork().is_err() {
        return Some("the process was forked from one that had used Penstock");
    }
    why_file().or_else(|| {
        if !is_plain {
            return Some("the transfer property list has properties that only HDF5 supports");
        }
        names_special_space(call).then_some("a dataspace is given by H5S_PLIST")
    })
}

/// Returns whether a dataspace of the call is neither an identifier nor H5S_ALL.
fn names_special_space(call: &DatasetCall<'_>) -> bool {
    let mut spaces = call.memory_spaces.iter().chain(call.file_spaces);
    spaces.any(|space| *space != H5S_ALL && is_special(*space))
}

/// Makes an operation of the transfers that continue, and returns its request to HDF5.
///
/// # Safety
/// As for [`read_or_write`].
unsafe fn add_operation(call: &DatasetCall<'_>, (sets, state): Continuing) {
    let is_implicit = call.req.is_null();
    let failures = is_implicit.then(|| Arc::clone(&call.policy().failures));
    let operation = AsyncOperation::new(call.name(), failures, state);
    add_pending(call.unders[0].library(), sets, &operation);
    if let (StartsAt::Now, Some(delay)) = (call.policy().starts_at, call.policy().delay) {
        begin_after(&operation, delay);
    }
    finish_when_exiting(call.unders[0].library());
    if !call.req.is_null() {
        // SAFETY: HDF5 passes a pointer for the request.
        unsafe { *call.req = Wrapped::request(&operation, &call.unders[0].container) };
    }
}

/// Makes host memory for the buffers of a call that the connector below carries out. Returns
/// `None` if all buffers are in host memory.
///
/// # Safety
/// As for [`read_or_write`].
pub(super) unsafe fn host_buffers(
    call: &DatasetCall<'_>,
    memories: &[Memory],
    stream: Option<Stream>,
) -> Result<Option<HostBuffers>> {
    if memories.iter().all(|memory| memory.context.is_none()) {
        return Ok(None);
    }
    let touched = |at: usize| {
        if memories[at].context.is_none() {
            return Ok(None);
        }
        // SAFETY: the caller guarantees this.
        let range = unsafe { touched_or_all(call, at)? };
        if let Some(stream) = stream {
            stream.synchronize(memories[at].device.max(0))?;
        }
        let elements = match call.operation {
            // SAFETY: the caller guarantees this.
            Operation::Read => unsafe { elements_apart(call, at, &range)? },
            Operation::Write => None,
        };
        Ok(Some(Touched { range, elements }))
    };
    // SAFETY: the caller guarantees the buffers.
    unsafe { HostBuffers::of(call.buffers, touched).map(Some) }
}

/// Returns the elements that a read of dataset `at` fills, if there are bytes between them in
/// `range`, the touched bytes.
///
/// # Safety
/// As for [`read_or_write`].
unsafe fn elements_apart(
    call: &DatasetCall<'_>,
    at: usize,
    range: &Range<u64>,
) -> Result<Option<ElementsApart>> {
    let (under, space) = (&call.unders[at], call.memory_space(at));
    if space == H5S_ALL {
        return Ok(None);
    }
    let library = under.library();
    // SAFETY: the thread is inside a call of this HDF5.
    let session = unsafe { Session::begin(library.hdf5) };
    // SAFETY: the caller guarantees this; HDF5 checks the identifier.
    let (moved, element) = unsafe {
        (
            shifted_to_first(library, space),
            (library.hdf5.H5Tget_size)(call.memory_types[at]) as u64,
        )
    };
    if moved.is_none() && range.start > 0 {
        return Err(Error::invalid(
            "HDF5 cannot copy the dataspace of the memory",
        ));
    }
    let space = moved.as_ref().map_or(space, |moved| moved.id);
    let selection = dataspace::selection(&session, space)?;
    let bytes = selection.elements().and_then(|n| n.checked_mul(element));
    if bytes == Some(range.end - range.start) && !selection.has_repeats() {
        return Ok(None);
    }
    Ok(Some(ElementsApart {
        selection,
        shape: dataspace::extent(&session, space)?.0,
        element: MemorySize(element),
    }))
}

/// Returns the bytes of GPU memory that the transfer of dataset `at` touches.
///
/// # Safety
/// As for [`read_or_write`].
unsafe fn touched_or_all(call: &DatasetCall<'_>, at: usize) -> Result<Range<u64>> {
    let (dataset, space) = (call.datasets[at], call.memory_space(at));
    let library = dataset.library();
    if space != H5S_ALL && is_special(space) {
        return Err(
            Error::invalid("the elements in GPU memory cannot be selected by H5S_PLIST")
                .remedy("give dataspaces for the file and the memory"),
        );
    }
    // SAFETY: the caller guarantees this; HDF5 checks the identifiers.
    unsafe {
        refuse_pointers(library, call.memory_types[at])?;
        let element = (library.hdf5.H5Tget_size)(call.memory_types[at]) as u64;
        let elements = match space {
            H5S_ALL => dataset.elements(),
            own => match touched_bytes(library, own, element) {
                Some(range) => return Ok(range),
                None => u64::try_from((library.hdf5.H5Sget_select_npoints)(own)).ok(),
            },
        };
        let bytes = elements.and_then(|elements| elements.checked_mul(element));
        let bytes = bytes.filter(|_| element > 0);
        let bytes =
            bytes.ok_or_else(|| Error::invalid("HDF5 does not return the size of the memory"))?;
        Ok(0..bytes)
    }
}
