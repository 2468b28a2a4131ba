//! Starts planned transfers, at once or later, with the memory of the application or with a copy.

use std::any::Any;
use std::ptr;
use std::sync::Arc;

use penstock_engine::Stream;
use penstock_engine::error::{Kind, Result};
use penstock_engine::memory::Memory;
use penstock_engine::options::Options;
use penstock_engine::reach;
use penstock_engine::request::{Request, StreamOrder};
use penstock_engine::snapshot::{Snapshot, Taken};

use super::budget::{Budget, Reservation, Reserved};
use super::dataset_call::DatasetCall;
use super::dataset_plan::DatasetPlan;
use super::pending::wait_for_oldest;
use crate::log::Execution;
use crate::operation::{QueuedTransfers, RunningTransfers, StartedTransfers, State};
use penstock_array::execute::{PreparedTransfer, SubmitOptions, submit};
use penstock_hdf5::transfer::conflicts::AccessSet;
use penstock_hdf5::transfer::is_done;

/// The memory that copies occupy.
static BUDGET: Budget = Budget::new();

/// The operation that continues after the call, and its access sets.
pub(crate) type Continuing = (Vec<AccessSet>, State);

/// Starts the planned transfers. Returns the transfers that continue after the call, and adds the others,
/// which the caller has to wait for, to `running`.
///
/// # Safety
/// As for [`read_or_write`](super::read_or_write).
pub(crate) unsafe fn start(
    call: &DatasetCall<'_>,
    plans: Vec<(DatasetPlan, AccessSet)>,
    stream: Option<Stream>,
    running: &mut RunningTransfers,
) -> Result<Option<Continuing>> {
    let continues = call.continues();
    let is_delayed = continues && call.policy().is_delayed();
    let (mut sets, mut bytes) = (Vec::new(), 0);
    let (mut ids, mut ready_transfers) = (Vec::new(), Vec::new());
    for (plan, set) in plans {
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
        let copied = is_copied.then(|| unsafe { copy(call, &plan, after) });
        let source = match copied.transpose()? {
            Some(Ok(copy)) => copy,
            Some(Err(why)) => {
                call.log(Execution::Sync, length, &why);
                let source = TransferMemory::of_application(&plan, after);
                ReadyTransfer::of(plan.options, plan.prepared, source, false)
                    .run()?
                    .finish()?;
                continue;
            }
            None => TransferMemory::of_application(&plan, after),
        };
        let ready = ReadyTransfer::of(plan.options, plan.prepared, source, continues);
        if !continues {
            running.begun.requests.push(Arc::new(ready.run()?));
            running.ids.extend(plan.id);
            continue;
        }
        bytes += length;
        sets.push(set);
        ids.extend(plan.id);
        ready_transfers.push(ready);
    }
    if ready_transfers.is_empty() {
        return Ok(None);
    }
    let queued = QueuedTransfers {
        begin: Box::new(move || begin(ready_transfers)),
        ids,
    };
    if is_delayed {
        let why = "begins later, as the environment asks";
        call.log(Execution::Deferred, bytes, why);
        return Ok(Some((sets, State::Queued(queued))));
    }
    let running = queued.begin();
    if running.begun.failed.is_some() {
        running.finish()?;
        return Ok(None);
    }
    call.log(Execution::Async, bytes, "");
    Ok(Some((sets, State::Running(running))))
}

/// Begins transfers, up to the first that cannot begin.
fn begin(ready_transfers: Vec<ReadyTransfer>) -> StartedTransfers {
    let mut begun = StartedTransfers::default();
    for ready in ready_transfers {
        match ready.run() {
            Ok(request) => begun.requests.push(Arc::new(request)),
            Err(error) => {
                begun.failed = Some(error);
                break;
            }
        }
    }
    begun
}

/// The memory of a transfer.
struct TransferMemory {
    address: usize,
    /// What is known of it already.
    memory: Option<Memory>,
    /// The stream after which GPU memory is ready.
    after: Option<StreamOrder>,
    /// The owner of a copy.
    owner: Option<Box<dyn Any + Send>>,
}

impl TransferMemory {
    /// The memory of the application.
    fn of_application(plan: &DatasetPlan, after: Option<Stream>) -> TransferMemory {
        // SAFETY: null is the default stream.
        let stream = after.unwrap_or_else(|| unsafe { Stream::from_raw(ptr::null_mut()) });
        let order = StreamOrder {
            stream,
            after: true,
            before: false,
        };
        TransferMemory {
            address: plan.buffer,
            memory: Some(plan.memory.clone()),
            after: plan.memory.context.is_some().then_some(order),
            owner: None,
        }
    }

    fn copied(taken: Taken, reservation: Reservation<'static>) -> TransferMemory {
        TransferMemory {
            address: taken.snapshot.address(),
            memory: None,
            after: taken.after,
            // The reservation ends after the memory is free.
            owner: Some(Box::new((taken.snapshot, reservation))),
        }
    }
}

/// A transfer that is ready for submission.
struct ReadyTransfer {
    prepared: PreparedTransfer,
    address: usize,
    memory: Option<Memory>,
    with: SubmitOptions,
}

impl ReadyTransfer {
    /// The memory must not change until the transfer has finished. The application guarantees that, except
    /// for a copy.
    fn of(
        options: Options,
        prepared: PreparedTransfer,
        source: TransferMemory,
        background: bool,
    ) -> ReadyTransfer {
        ReadyTransfer {
            prepared,
            address: source.address,
            memory: source.memory,
            with: SubmitOptions {
                waiter_shares: false,
                options,
                stream: source.after,
                background,
                owner: source.owner,
                ..SubmitOptions::default()
            },
        }
    }

    fn run(self) -> Result<Request> {
        // SAFETY: the application guarantees its memory, and submitter steps run inside a call of HDF5.
        unsafe { submit(self.prepared, self.address, self.memory, self.with) }
    }
}

/// Copies the buffer of a write. Returns the reason if there is no memory for the copy.
///
/// # Safety
/// As for [`read_or_write`](super::read_or_write).
unsafe fn copy(
    call: &DatasetCall<'_>,
    plan: &DatasetPlan,
    after: Option<Stream>,
) -> Result<std::result::Result<TransferMemory, String>> {
    let limit = call.policy().copy_limit();
    let library = call.unders[0].library();
    let bytes = plan.touched.end - plan.touched.start;
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
    match unsafe { Snapshot::take(plan.buffer, plan.touched.clone(), after) } {
        Ok(taken) => Ok(Ok(TransferMemory::copied(taken, reservation))),
        Err(error) if error.kind() == Kind::Memory => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}
