//! Turns a prepared transfer into a request.
//!
//! The engine carries out a transfer that only moves bytes in long runs as a plain transfer. Any
//! other transfer becomes a task for its direction and kind of memory:
//!
//! 1. The kind of the array's memory is queried once, and its lowest address computed.
//! 2. A read whose plans all move bytes of one file becomes a plain transfer. Ranges close together
//!    in the file are then read together.
//! 3. Other reads become a [`HostRead`] or a read into GPU memory; a write becomes a task for its
//!    [`Sink`].
//! 4. The task runs on the engine's workers. What only the format's library may do runs in
//!    submitter steps.
//!
//! If an error keeps the transfer from being submitted, its sink is ended here.

use std::any::Any;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_engine::options::{Options, RouteName};
use penstock_engine::report::Path;
use penstock_engine::request::{
    self, MOST_OF_WAITER, MOST_WORK_OF_WAITER, Request, Share, StreamOrder, Task, TaskOrder,
};
use penstock_engine::{Extent, cores, merged_options};

use super::bound::{BoundPlan, PlanFile};
use super::memory::{DeviceMemory, HostMemory};
use super::plain::{extents_of_all, rows_of_shared_file};
use super::read::{DeviceRead, HostRead};
use super::sink::Sink;
use super::write::{Array, ChunkWrite, ElementWrite, kernels};
use crate::{ElementMapping, Holes, Plan};

/// The settings of a submission, apart from the transfer itself.
#[derive(Default)]
pub struct SubmitOptions {
    /// The options of the call.
    pub options: Options,
    /// The position of the request in the order of a stream.
    pub stream: Option<StreamOrder>,
    /// Whether the caller does other work meanwhile.
    pub background: bool,
    /// Whether the caller only waits for the request, so that its thread may do a share of a small
    /// one.
    pub waiter_shares: bool,
    /// What a read does with elements that were never written.
    pub holes: Holes,
    /// Dropped once the memory is no longer accessed.
    pub owner: Option<Box<dyn Any + Send>>,
}

/// A planned transfer that lacks only the address of its memory.
pub struct PreparedTransfer {
    /// The remaining work.
    pub kind: TransferKind,
    /// Whether the file is read or written.
    pub direction: Operation,
    /// Offset of the memory's lowest byte from the address of the array's first element.
    pub low: i64,
    /// Bytes of the memory, from the lowest on.
    pub length: u64,
    /// The file that errors name.
    pub path: PathBuf,
    /// What planning has already transferred.
    pub beforehand: Beforehand,
}

impl PreparedTransfer {
    /// Returns what a write moves of each element, and its plan for memory that has only these parts, in place
    /// of the elements. `None` if there is no such plan, or if `is_wanted` is false for the element.
    pub fn of_parts(
        &self,
        is_wanted: impl Fn(ElementMapping) -> bool,
    ) -> Option<(ElementMapping, Plan)> {
        let TransferKind::Write(bound, _) = &self.kind else {
            return None;
        };
        let element = bound.plan.element();
        let plan = is_wanted(element).then(|| bound.plan.of_parts())??;
        Some((element, plan))
    }

    /// Changes a write to a plan that [`of_parts`](Self::of_parts) has returned.
    pub fn take_parts(&mut self, plan: Plan) {
        if let TransferKind::Write(bound, _) = &mut self.kind {
            let elements = self.length / bound.plan.memory_element().max(1);
            self.length = elements * plan.memory_element();
            bound.plan = Arc::new(plan);
        }
    }
}

/// The remaining work of a transfer.
pub enum TransferKind {
    /// Nothing remains.
    Nothing,
    /// Bytes move unchanged, in long runs.
    Plain {
        /// The file.
        file: Arc<File>,
        /// Its ranges. Memory offsets count from the lowest byte.
        ranges: Vec<Extent>,
        /// Called last, on the submitter's thread, whether or not the request succeeded.
        at_end: Option<AtEnd>,
    },
    /// A read of arrays.
    Read(Vec<BoundPlan>),
    /// A write of an array.
    Write(BoundPlan, Sink),
}

/// The last submitter step.
pub type AtEnd = Box<dyn Fn() + Send + Sync>;

/// Work that was done for a request before its submission.
pub struct Beforehand {
    /// Bytes that were moved.
    pub moved: u64,
    /// The path that they took.
    pub by: Path,
    /// Why the request takes another path than the requested one.
    pub note: Option<String>,
}

impl Default for Beforehand {
    /// Nothing was done, so the path has no effect.
    fn default() -> Beforehand {
        Beforehand {
            moved: 0,
            by: Path::HostBuffered,
            note: None,
        }
    }
}

/// Starts a prepared transfer. `address` is that of the array's first element; `memory` describes
/// the memory at its lowest byte, if that was queried already.
///
/// # Safety
/// The memory described when the transfer was prepared stays valid until the request has finished.
/// Nothing else accesses it in a read, and nothing else writes to it in a write, until then. What
/// the sink needs stays valid as long, and submitter steps run on threads on which the sink may be
/// called.
pub unsafe fn submit(
    mut prepared: PreparedTransfer,
    address: usize,
    memory: Option<Memory>,
    with: SubmitOptions,
) -> Result<Request> {
    if let TransferKind::Read(plans) = &mut prepared.kind {
        for bound in plans {
            Arc::make_mut(&mut bound.plan).set_holes(with.holes);
        }
    }
    let (start, memory) = match place_of(&prepared, address, memory) {
        Ok(place) => place,
        Err(error) => return Err(prepared.kind.end(error)),
    };
    let path = prepared.path;
    // Planning continues here and may find errors in the chunk index.
    let named = |error: Error| error.in_file(&path);
    // A plain transfer cannot report what was done before.
    let beforehand = &prepared.beforehand;
    let kind = if beforehand.moved == 0 && beforehand.note.is_none() {
        prepared.kind.or_plain(memory.context.is_some())
    } else {
        Ok(prepared.kind)
    };
    let kind = kind.map_err(named)?;
    let waiter_shares = with.waiter_shares && kind.is_quick(prepared.length);
    let kind = match kind {
        TransferKind::Plain {
            file,
            ranges,
            at_end,
        } => {
            // SAFETY: upheld by the caller.
            return unsafe {
                let plain = (&file, ranges, at_end);
                submit_plain(prepared.direction, plain, (start, memory), with)
            };
        }
        kind => kind,
    };
    let limits = || -> Result<(Options, usize)> {
        let options = merged_options(with.options)?;
        Ok((options, options.threads.map_or(cores()?, |n| n as usize)))
    };
    let (options, most) = match limits() {
        Ok(limits) => limits,
        Err(error) => return Err(kind.end(error)),
    };
    let (start, length) = (start as u64, prepared.length);
    // SAFETY: the caller guarantees that the memory is valid.
    let on_host = || unsafe { HostMemory::new(start as *mut u8, length) };
    let mut note = prepared.beforehand.note;
    let has_steps = matches!(&kind, TransferKind::Write(_, sink) if !matches!(sink, Sink::InPlace));
    let (task, workers): (Box<dyn Task>, usize) = match kind {
        TransferKind::Nothing | TransferKind::Plain { .. } => {
            (Box::new(Nothing(prepared.direction)), 1)
        }
        TransferKind::Read(plans) => match &memory.context {
            None => {
                let read = HostRead::new(plans, on_host(), most);
                let workers = read.workers(most).map_err(named)?;
                (Box::new(read), workers)
            }
            Some(context) => {
                let device = DeviceMemory { start, length };
                let own = context.own()?;
                let mut read = DeviceRead::new(plans, device, own, most, &options)?;
                note = note.or(read.note.take()).or(own.note().map(str::to_owned));
                let workers = read.workers(most).map_err(named)?;
                (Box::new(read), workers)
            }
        },
        TransferKind::Write(bound, sink) => {
            let array = match &memory.context {
                None => Array::Host(on_host()),
                Some(context) => {
                    let own = context.own().inspect_err(|_| sink.end())?;
                    note = note.or(own.note().map(str::to_owned));
                    Array::Device {
                        memory: DeviceMemory { start, length },
                        kernels: kernels(own).inspect_err(|_| sink.end())?,
                        context: Arc::clone(own),
                    }
                }
            };
            let touched = usize::try_from(bound.plan.touched()).unwrap_or(usize::MAX);
            let share = match (options.threads, common_file(slice::from_ref(&bound))) {
                (None, Some(file)) => file.share_of(most),
                _ => most,
            };
            let workers = share.min(touched).max(1);
            let path = path.clone();
            match sink {
                Sink::Chunks(sink) => {
                    let write = ChunkWrite::new(bound, array, sink, path, (&options, most));
                    let workers = write.workers();
                    (Box::new(write), workers)
                }
                Sink::Blocks(sink) => (
                    Box::new(ElementWrite::blocks(bound, array, sink, path)),
                    workers,
                ),
                Sink::InPlace => (
                    Box::new(ElementWrite::in_place(bound, array, path)),
                    workers,
                ),
                Sink::Dense(sink, bytes) => (
                    Box::new(ElementWrite::dense(bound, array, sink, bytes, path)?),
                    workers,
                ),
            }
        }
    };
    let order = TaskOrder {
        task,
        path,
        workers,
        requested: match memory.context {
            None => RouteName::Host,
            Some(_) => RouteName::Staged,
        },
        context: memory.context,
        block: 0,
        has_steps,
        waiter_shares,
        moved: prepared.beforehand.moved,
        moved_by: prepared.beforehand.by,
        note,
    };
    // SAFETY: upheld by the caller.
    unsafe { request::submit_task(order, with.stream, with.owner) }
}

impl TransferKind {
    /// Returns whether the transfer of this many bytes takes milliseconds at most.
    fn is_quick(&self, length: u64) -> bool {
        let work = |sum: u64, bound: &BoundPlan| sum.saturating_add(bound.plan.work_bytes());
        match self {
            TransferKind::Read(plans) => {
                length <= MOST_OF_WAITER && plans.iter().fold(0, work) <= MOST_WORK_OF_WAITER
            }
            TransferKind::Nothing | TransferKind::Plain { .. } => length <= MOST_OF_WAITER,
            TransferKind::Write(..) => false,
        }
    }

    /// Ends a transfer that is not submitted because of `error`, which it returns.
    fn end(&self, error: Error) -> Error {
        if let TransferKind::Write(_, sink) = self {
            sink.end();
        }
        error
    }

    /// Turns reads of one file that only move bytes into a plain transfer, in which ranges that are
    /// close together in the file are read together. Writes of rows into a file that other processes
    /// write as well become plain transfers, too.
    fn or_plain(self, is_gpu: bool) -> Result<TransferKind> {
        let (file, ranges) = match &self {
            TransferKind::Read(plans) => match common_file(plans) {
                Some(file) => (file, extents_of_all(plans, is_gpu)?),
                None => return Ok(self),
            },
            TransferKind::Write(bound, Sink::InPlace) => {
                match common_file(slice::from_ref(bound)) {
                    Some(file) if file.writers() > 1 => (file, rows_of_shared_file(bound, is_gpu)?),
                    _ => return Ok(self),
                }
            }
            _ => return Ok(self),
        };
        Ok(match ranges {
            Some(ranges) => TransferKind::Plain {
                file,
                ranges,
                at_end: None,
            },
            None => self,
        })
    }
}

/// Returns the file of all plans, if they share one.
fn common_file(plans: &[BoundPlan]) -> Option<Arc<File>> {
    let PlanFile::Open(first) = plans.first()?.files.first()? else {
        return None;
    };
    let is_same = |bound: &BoundPlan| match bound.files.as_slice() {
        [PlanFile::Open(file)] => Arc::ptr_eq(file, first),
        _ => false,
    };
    (plans.len() == 1 || plans.iter().all(is_same)).then(|| Arc::clone(first))
}

/// Returns the address of the lowest byte, and the memory at that address.
fn place_of(
    prepared: &PreparedTransfer,
    address: usize,
    memory: Option<Memory>,
) -> Result<(usize, Memory)> {
    let start = start_of(prepared, address)?;
    let memory = match memory {
        Some(known) => known,
        None => Memory::at(start)?,
    };
    Ok((start, memory))
}

/// Returns the address of the lowest byte.
fn start_of(prepared: &PreparedTransfer, address: usize) -> Result<usize> {
    let start = address.checked_add_signed(prepared.low as isize);
    let is_inside = |start: &usize| start.checked_add(prepared.length as usize).is_some();
    let start = start
        .filter(is_inside)
        .ok_or_else(|| Error::invalid("the array extends past the end of the address space"))?;
    if prepared.length > 0 && address == 0 {
        return Err(Error::invalid("the buffer is a null pointer"));
    }
    Ok(start)
}

/// # Safety
/// As for [`submit`].
unsafe fn submit_plain(
    direction: Operation,
    (file, mut ranges, at_end): (&Arc<File>, Vec<Extent>, Option<AtEnd>),
    (start, memory): (usize, Memory),
    with: SubmitOptions,
) -> Result<Request> {
    for range in &mut ranges {
        range.memory += start;
    }
    let mut order = request::Order::new(direction, &ranges, with.options);
    order.background = with.background;
    order.waiter_shares = with.waiter_shares;
    order.memory = Some(memory);
    order.last_step = at_end;
    // SAFETY: upheld by the caller; the ranges lie inside the memory described.
    unsafe { request::submit(file, order, with.stream, with.owner) }
}

/// The task of a transfer that has no remaining work.
struct Nothing(Operation);

impl Task for Nothing {
    fn serve(&self, _share: &Share<'_>) -> Result<()> {
        Ok(())
    }

    fn named(&self, error: Error) -> Error {
        error
    }

    fn operation(&self) -> Operation {
        self.0
    }
}
