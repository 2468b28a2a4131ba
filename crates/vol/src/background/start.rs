//! Starts planned transfers, immediately or later, with the application's memory or with a copy.

use std::ptr;
use std::sync::Arc;

use penstock_engine::Stream;
use penstock_engine::error::{Kind, Result};
use penstock_engine::reach;
use penstock_engine::request::StreamOrder;
use penstock_engine::snapshot::{Snapshot, Taken};

use super::budget::{Budget, Reservation, Reserved};
use super::dataset_call::DatasetCall;
use super::dataset_plan::DatasetPlan;
use super::pending::wait_for_oldest;
use crate::log::Execution;
use crate::operation::{State, Submission, Transfers};
use penstock_array::ElementMapping;
use penstock_array::execute::{SubmitOptions, submit};
use penstock_hdf5::transfer::conflicts::AccessSet;
use penstock_hdf5::transfer::is_done;

/// Budget for the memory of copies.
static BUDGET: Budget = Budget::new();

/// A copy has only the moved part of each element if the element is larger by at least this factor.
const LEAST_LEFT_OUT: u64 = 2;

/// An operation that continues after the call, and its access sets.
pub(crate) type Continuing = (Vec<AccessSet>, State);

/// Starts the planned transfers. Returns those that continue after the call, and adds those that
/// the caller must wait for to `running`.
///
/// # Safety
/// As for [`read_or_write`](super::read_or_write).
pub(crate) unsafe fn start(
    call: &DatasetCall<'_>,
    plans: Vec<(DatasetPlan, AccessSet)>,
    stream: Option<Stream>,
    running: &mut Transfers,
) -> Result<Option<Continuing>> {
    let continues = call.continues();
    let is_delayed = continues && call.policy().is_delayed();
    let (mut sets, mut bytes) = (Vec::new(), 0);
    let mut transfers = Transfers::default();
    for (mut plan, set) in plans {
        if is_done(&plan.prepared) {
            if continues {
                call.log(Execution::Sync, 0, "nothing is selected");
            }
            continue;
        }
        let length = plan.touched.end - plan.touched.start;
        let is_on_host = plan.memory.context.is_none();
        if is_on_host {
            let first = plan.buffer.wrapping_add(plan.touched.start as usize);
            reach::check(first, length as usize, call.use_of_memory())?;
        }
        let mut after = stream.filter(|_| !is_on_host);
        if let (true, Some(stream)) = (is_delayed, after) {
            // The application may destroy the stream before the operation begins.
            stream.synchronize(plan.memory.device.max(0))?;
            after = None;
        }
        let is_copied = continues && call.is_copied();
        // SAFETY: the caller guarantees this.
        let copied = is_copied.then(|| unsafe { copy(call, &mut plan, after) });
        let id = plan.id.take();
        let submit = match copied.transpose()? {
            Some(Ok(copy)) => of_copy(plan, copy),
            Some(Err(why)) => {
                call.log(Execution::Sync, length, &why);
                of_application(plan, after, false)()?.finish()?;
                continue;
            }
            None => of_application(plan, after, continues),
        };
        if !continues {
            running.requests.push(Arc::new(submit()?));
            running.ids.extend(id);
            continue;
        }
        bytes += length;
        sets.push(set);
        transfers.ids.extend(id);
        transfers.ready.push(submit);
    }
    if transfers.ready.is_empty() {
        return Ok(None);
    }
    if is_delayed {
        let why = "begins later, as the environment requests";
        call.log(Execution::Deferred, bytes, why);
        return Ok(Some((sets, State::Queued(transfers))));
    }
    transfers.begin();
    if transfers.failed.is_some() {
        transfers.finish()?;
        return Ok(None);
    }
    call.log(Execution::Async, bytes, "");
    Ok(Some((sets, State::Running(transfers))))
}

/// Submits a transfer with the application's memory, which the application keeps unchanged until
/// the transfer has finished. GPU memory is ready after the work of stream `after`.
fn of_application(plan: DatasetPlan, after: Option<Stream>, background: bool) -> Submission {
    // SAFETY: null is the default stream.
    let stream = after.unwrap_or_else(|| unsafe { Stream::from_raw(ptr::null_mut()) });
    let order = StreamOrder {
        stream,
        after: true,
        before: false,
    };
    let with = SubmitOptions {
        waiter_shares: false,
        options: plan.options,
        stream: plan.memory.context.is_some().then_some(order),
        background,
        ..SubmitOptions::default()
    };
    // SAFETY: the application guarantees its memory, and submitter steps run inside a call of HDF5.
    Box::new(move || unsafe { submit(plan.prepared, plan.buffer, Some(plan.memory), with) })
}

/// Submits a transfer of a copy.
fn of_copy(plan: DatasetPlan, (taken, reservation): Copied) -> Submission {
    let address = taken.snapshot.address();
    let with = SubmitOptions {
        waiter_shares: false,
        options: plan.options,
        stream: taken.after,
        background: true,
        // The reservation ends after the memory is free.
        owner: Some(Box::new((taken.snapshot, reservation))),
        ..SubmitOptions::default()
    };
    // SAFETY: the request owns the copy, and submitter steps run inside a call of HDF5.
    Box::new(move || unsafe { submit(plan.prepared, address, None, with) })
}

/// A copy of the application's memory, and its share of the budget.
type Copied = (Taken, Reservation<'static>);

/// Copies the buffer of a write. If the write moves a small part of each element in host memory, it copies these
/// parts, and the plan becomes that of the copy. Returns the reason if there is no memory for the copy.
///
/// # Safety
/// As for [`read_or_write`](super::read_or_write).
unsafe fn copy(
    call: &DatasetCall<'_>,
    plan: &mut DatasetPlan,
    after: Option<Stream>,
) -> Result<std::result::Result<Copied, String>> {
    let limit = call.policy().copy_limit();
    let library = call.unders[0].library();
    let is_on_host = plan.memory.context.is_none();
    let is_small = |element: ElementMapping| {
        is_on_host && element.length.saturating_mul(LEAST_LEFT_OUT) <= element.source
    };
    let parts = plan.prepared.of_parts(is_small);
    let touched = plan.touched.clone();
    let mut bytes = touched.end - touched.start;
    if let Some((element, _)) = &parts {
        bytes = bytes / element.source * element.length;
    }
    let reservation = loop {
        match BUDGET.reserve(bytes, limit) {
            Reserved::Granted(reservation) => break reservation,
            Reserved::Wait if wait_for_oldest(library) => {}
            Reserved::Wait | Reserved::TooLarge => {
                let limit = limit >> 20;
                return Ok(Err(format!(
                    "a copy would take more than max_mem_mb={limit}"
                )));
            }
        }
    };
    // SAFETY: the caller guarantees the buffer.
    let taken = unsafe {
        match &parts {
            Some((element, _)) => {
                let part = element.offset..element.offset + element.length;
                Snapshot::take_parts(plan.buffer, touched, element.source, part)
            }
            None => Snapshot::take(plan.buffer, touched, after),
        }
    };
    match taken {
        Ok(taken) => {
            if let Some((_, parts)) = parts {
                plan.prepared.take_parts(parts);
            }
            Ok(Ok((taken, reservation)))
        }
        Err(error) if error.kind() == Kind::Memory => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}
