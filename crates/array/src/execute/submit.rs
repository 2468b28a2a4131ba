//! Turns a prepared transfer into a request.
//!
//! The engine carries out a transfer that only moves bytes in long runs as a plain transfer. Any
//! other transfer becomes a task for its direction and kind of memory:
//!
//! 1. The kind of the array's memory is queried once, and its lowest address computed:
//!    [`ArrayMemory::of`].
//! 2. A read whose plans all move bytes of one file becomes a plain transfer. Ranges close together
//!    in the file are then read together: [`TransferKind::or_plain`].
//! 3. Other reads become a [`HostRead`] or a [`DeviceRead`], by [`Work::read`]; a write becomes a
//!    task for its [`Sink`], by [`Work::write`].
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
    // SAFETY: upheld by the caller.
    let memory = unsafe { ArrayMemory::of(&prepared, address, memory) }
        .inspect_err(|_| prepared.kind.end())?;
    let PreparedTransfer {
        kind,
        direction,
        path,
        beforehand,
        ..
    } = prepared;
    // A plain transfer cannot report what was done before.
    let kind = if beforehand.moved == 0 && beforehand.note.is_none() {
        kind.or_plain(memory.kind.context.is_some())
            .map_err(|error| error.in_file(&path))?
    } else {
        kind
    };
    let waiter_shares = with.waiter_shares && kind.is_quick(memory.length);
    let has_steps = matches!(&kind, TransferKind::Write(_, sink) if !matches!(sink, Sink::InPlace));
    let work = match kind {
        TransferKind::Plain {
            file,
            mut ranges,
            at_end,
        } => {
            for range in &mut ranges {
                range.memory += memory.start;
            }
            let mut order = request::Order::new(direction, &ranges, with.options);
            order.background = with.background;
            order.waiter_shares = with.waiter_shares;
            order.memory = Some(memory.kind);
            order.last_step = at_end;
            // SAFETY: upheld by the caller; the ranges lie inside the memory described.
            return unsafe { request::submit(&file, order, with.stream, with.owner) };
        }
        // Options out of range are an error here, too.
        TransferKind::Nothing => {
            Limits::of(with.options).map(|_| Work::new(Nothing(direction), 1))?
        }
        TransferKind::Read(plans) => Work::read(plans, &memory, with.options, &path)?,
        TransferKind::Write(bound, sink) => {
            Work::write(bound, sink, &memory, with.options, path.clone())?
        }
    };
    let order = TaskOrder {
        task: work.task,
        path,
        workers: work.workers,
        requested: match memory.kind.context {
            None => RouteName::Host,
            Some(_) => RouteName::Staged,
        },
        context: memory.kind.context,
        block: 0,
        has_steps,
        waiter_shares,
        moved: beforehand.moved,
        moved_by: beforehand.by,
        note: beforehand.note.or(work.note),
    };
    // SAFETY: upheld by the caller.
    unsafe { request::submit_task(order, with.stream, with.owner) }
}

/// The memory of the array of a submission.
struct ArrayMemory {
    /// The address of the lowest byte.
    start: usize,
    length: u64,
    /// The memory at `start`.
    kind: Memory,
}

impl ArrayMemory {
    /// Computes the lowest address, and queries the memory there unless it is `known`.
    ///
    /// # Safety
    /// As for [`submit`], for the memory.
    unsafe fn of(
        prepared: &PreparedTransfer,
        address: usize,
        known: Option<Memory>,
    ) -> Result<ArrayMemory> {
        let length = prepared.length;
        let start = address
            .checked_add_signed(prepared.low as isize)
            .filter(|start| start.checked_add(length as usize).is_some())
            .ok_or_else(|| Error::invalid("the array extends past the end of the address space"))?;
        if length > 0 && address == 0 {
            return Err(Error::invalid("the buffer is a null pointer"));
        }
        let kind = known.map_or_else(|| Memory::at(start), Ok)?;
        Ok(ArrayMemory {
            start,
            length,
            kind,
        })
    }

    fn on_host(&self) -> HostMemory {
        // SAFETY: the creator guarantees that the memory is valid.
        unsafe { HostMemory::new(self.start as *mut u8, self.length) }
    }

    fn on_device(&self) -> DeviceMemory {
        DeviceMemory {
            start: self.start as u64,
            length: self.length,
        }
    }

    /// Returns the memory as the array of a write, and the note of its GPU.
    fn to_write(&self) -> Result<(Array, Option<String>)> {
        let Some(context) = &self.kind.context else {
            return Ok((Array::Host(self.on_host()), None));
        };
        let own = context.own()?;
        let array = Array::Device {
            memory: self.on_device(),
            kernels: kernels(own)?,
            context: Arc::clone(own),
        };
        Ok((array, own.note().map(str::to_owned)))
    }
}

/// What limits the workers of a task.
struct Limits {
    options: Options,
    /// The most workers: the number in the options, or that of the cores.
    workers: usize,
}

impl Limits {
    fn of(options: Options) -> Result<Limits> {
        let options = merged_options(options)?;
        let workers = options.threads.map_or(cores()?, |n| n as usize);
        Ok(Limits { options, workers })
    }
}

/// A transfer that the engine's workers carry out by a task.
struct Work {
    task: Box<dyn Task>,
    workers: usize,
    /// Why the task takes another path than the requested one.
    note: Option<String>,
}

impl Work {
    fn new(task: impl Task + 'static, workers: usize) -> Work {
        Work {
            task: Box::new(task),
            workers,
            note: None,
        }
    }

    /// The read of plans into host or GPU memory. Errors in the chunk index name `path`.
    fn read(
        plans: Vec<BoundPlan>,
        memory: &ArrayMemory,
        options: Options,
        path: &std::path::Path,
    ) -> Result<Work> {
        let Limits { options, workers } = Limits::of(options)?;
        // Counting the workers' work continues the planning, and may find such errors.
        let named = |error: Error| error.in_file(path);
        let Some(context) = &memory.kind.context else {
            let read = HostRead::new(plans, memory.on_host(), workers);
            let workers = read.workers(workers).map_err(named)?;
            return Ok(Work::new(read, workers));
        };
        let own = context.own()?;
        let mut read = DeviceRead::new(plans, memory.on_device(), own, workers, &options)?;
        let note = read.note.take().or(own.note().map(str::to_owned));
        let workers = read.workers(workers).map_err(named)?;
        Ok(Work {
            note,
            ..Work::new(read, workers)
        })
    }

    /// The write of an array through `sink`, which is ended on an error.
    fn write(
        bound: BoundPlan,
        sink: Sink,
        memory: &ArrayMemory,
        options: Options,
        path: PathBuf,
    ) -> Result<Work> {
        let prepare = || Ok((Limits::of(options)?, memory.to_write()?));
        let (limits, (array, note)) = prepare().inspect_err(|_: &Error| sink.end())?;
        let touched = usize::try_from(bound.plan.touched()).unwrap_or(usize::MAX);
        let share = match (limits.options.threads, common_file(slice::from_ref(&bound))) {
            (None, Some(file)) => file.share_of(limits.workers),
            _ => limits.workers,
        };
        let workers = share.min(touched).max(1);
        let work = match sink {
            Sink::Chunks(sink) => {
                let limits = (&limits.options, limits.workers);
                let write = ChunkWrite::new(bound, array, sink, path, limits);
                let workers = write.workers();
                Work::new(write, workers)
            }
            Sink::Blocks(sink) => {
                Work::new(ElementWrite::blocks(bound, array, sink, path), workers)
            }
            Sink::InPlace => Work::new(ElementWrite::in_place(bound, array, path), workers),
            Sink::Dense(sink, bytes) => {
                let write = ElementWrite::dense(bound, array, sink, bytes, path)?;
                Work::new(write, workers)
            }
        };
        Ok(Work { note, ..work })
    }
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

    /// Ends a transfer that is not submitted.
    fn end(&self) {
        if let TransferKind::Write(_, sink) = self {
            sink.end();
        }
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
