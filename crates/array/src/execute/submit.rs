//! From a prepared transfer to a request: the plain transfer of the engine where that is all, else the
//! task for its direction and kind of memory.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_engine::options::{Options, RouteName};
use penstock_engine::report::Path;
use penstock_engine::request::{self, Duty, DutyOrder, Request, Share, StreamOrder};
use penstock_engine::{Extent, cores, merged_options};

use super::bound::BoundPlan;
use super::memory::{DeviceMemory, HostMemory};
use super::plain::extents;
use super::read::{DeviceRead, HostRead};
use super::sink::Sink;
use super::write::{Array, BlockWrite, ChunkWrite, DenseWrite, kernels};

/// How a request is submitted, besides what it moves.
#[derive(Default)]
pub struct SubmitOptions {
    /// Those of the call.
    pub options: Options,
    /// Its order with the work on a stream.
    pub stream: Option<StreamOrder>,
    /// The caller goes on meanwhile.
    pub background: bool,
    /// Dropped when the memory is no longer touched.
    pub owner: Option<Box<dyn Any + Send>>,
}

/// A transfer that is planned, and needs nothing but its memory.
pub struct PreparedTransfer {
    /// What is left to do.
    pub kind: TransferKind,
    /// Which way the bytes go.
    pub direction: Operation,
    /// Lowest byte of the memory, from the address of the array's first element.
    pub low: i64,
    /// Bytes of the memory, from the lowest on.
    pub length: u64,
    /// The file that errors name.
    pub path: PathBuf,
    /// What was done while it was planned.
    pub beforehand: Beforehand,
}

/// What a transfer is.
pub enum TransferKind {
    /// Nothing is left to do.
    Nothing,
    /// Bytes are moved as they are, in long runs.
    Plain {
        /// The one file.
        file: Arc<File>,
        /// Its ranges; their memory counts from the lowest byte.
        ranges: Vec<Extent>,
        /// Called at the end on the submitter's thread, however the request has ended.
        at_end: Option<AtEnd>,
    },
    /// Arrays are read.
    Read(Vec<BoundPlan>),
    /// An array is written.
    Write(BoundPlan, Sink),
}

/// What comes last, on the submitter's thread.
pub type AtEnd = Box<dyn Fn() + Send + Sync>;

/// What was done for a request before it was submitted.
pub struct Beforehand {
    /// Bytes that were moved.
    pub moved: u64,
    /// How they were.
    pub by: Path,
    /// Why the request goes another way than asked for.
    pub note: Option<String>,
}

/// Starts a prepared transfer with the memory at `address`, which is that of the array's first element.
/// `memory` is what is known of the memory at its lowest byte, where that was asked already.
///
/// # Safety
/// The memory that was described when the transfer was prepared stays valid until the request is
/// finished. In a read nobody else touches it meanwhile, in a write nobody writes to it. What the sink
/// needs stays as long, and submitter steps are taken on threads on which the sink may be called.
pub unsafe fn submit(
    prepared: PreparedTransfer,
    address: usize,
    memory: Option<Memory>,
    with: SubmitOptions,
) -> Result<Request> {
    let start = start_of(&prepared, address)?;
    let memory = match memory {
        Some(known) => known,
        None => Memory::at(start)?,
    };
    let path = prepared.path;
    // Planning goes on here, and finds what the index of chunks says wrong.
    let named = |error: Error| error.in_file(&path);
    let kind = match prepared
        .kind
        .or_plain(memory.context.is_some())
        .map_err(named)?
    {
        TransferKind::Plain {
            file,
            ranges,
            at_end,
        } => {
            // SAFETY: passed on.
            return unsafe {
                let plain = (&file, ranges, at_end);
                submit_plain(prepared.direction, plain, (start, memory), with)
            };
        }
        kind => kind,
    };
    let options = merged_options(with.options)?;
    let most = options.threads.map_or(cores()?, |n| n as usize);
    // SAFETY: the caller vouches for the memory.
    let host = unsafe { HostMemory::new(start as *mut u8, prepared.length) };
    let device = DeviceMemory {
        start: start as u64,
        length: prepared.length,
    };
    let mut note = prepared.beforehand.note;
    let has_turns = matches!(kind, TransferKind::Write(..));
    let (duty, workers): (Box<dyn Duty>, usize) = match kind {
        TransferKind::Nothing | TransferKind::Plain { .. } => {
            (Box::new(Nothing(prepared.direction)), 1)
        }
        TransferKind::Read(plans) => match &memory.context {
            None => {
                let read = HostRead::new(plans, host);
                let workers = read.workers(most).map_err(named)?;
                (Box::new(read), workers)
            }
            Some(context) => {
                let is_held = with.stream.is_some_and(|order| order.before);
                let mut read = DeviceRead::new(plans, device, context, most, &options, is_held)?;
                note = note.or(read.note.take());
                let workers = read.workers(most).map_err(named)?;
                (Box::new(read), workers)
            }
        },
        TransferKind::Write(bound, sink) => {
            let array = match &memory.context {
                None => Array::Host(host),
                Some(context) => Array::Device {
                    memory: device,
                    kernels: kernels(context)?,
                    context: Arc::clone(context),
                },
            };
            let touched = usize::try_from(bound.plan.touched()).unwrap_or(usize::MAX);
            let workers = most.min(touched).max(1);
            let path = path.clone();
            match sink {
                Sink::Chunks(sink) => {
                    let write = ChunkWrite::new(bound, array, sink, path, options.scratch, most);
                    let workers = write.workers();
                    (Box::new(write), workers)
                }
                Sink::Blocks(sink) => {
                    (Box::new(BlockWrite::new(bound, array, sink, path)), workers)
                }
                Sink::Dense(sink, bytes) => (
                    Box::new(DenseWrite::new(bound, array, sink, bytes, path)?),
                    workers,
                ),
            }
        }
    };
    let order = DutyOrder {
        duty,
        path,
        workers,
        asked: match memory.context {
            None => RouteName::Host,
            Some(_) => RouteName::Staged,
        },
        context: memory.context,
        block: 0,
        has_turns,
        moved: prepared.beforehand.moved,
        moved_by: prepared.beforehand.by,
        note,
    };
    // SAFETY: passed on.
    unsafe { request::submit_duty(order, with.stream, with.owner) }
}

impl TransferKind {
    /// The plain transfer that a read is, if it is one.
    fn or_plain(self, is_gpu: bool) -> Result<TransferKind> {
        let TransferKind::Read(plans) = self else {
            return Ok(self);
        };
        if let [bound] = plans.as_slice()
            && let Some(Ok(file)) = bound.files.first()
            && let Some(ranges) = extents(bound, is_gpu)?
        {
            return Ok(TransferKind::Plain {
                file: Arc::clone(file),
                ranges,
                at_end: None,
            });
        }
        Ok(TransferKind::Read(plans))
    }
}

/// The address of the lowest byte.
fn start_of(prepared: &PreparedTransfer, address: usize) -> Result<usize> {
    let start = address.checked_add_signed(prepared.low as isize);
    let is_inside = |start: &usize| start.checked_add(prepared.length as usize).is_some();
    let start = start
        .filter(is_inside)
        .ok_or_else(|| Error::invalid("the array reaches beyond all addresses"))?;
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
    order.memory = Some(memory);
    // SAFETY: passed on: the ranges lie inside the memory described.
    unsafe {
        match at_end {
            None => request::submit(file, order, with.stream, with.owner),
            Some(last) => request::submit_with_turn(file, order, with.stream, with.owner, last),
        }
    }
}

/// The task of a transfer that is done.
struct Nothing(Operation);

impl Duty for Nothing {
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
