//! From a prepared read to a request: the plain transfer of the engine where that is all, else the
//! duty for the kind of memory.

use std::any::Any;

use penstock_codec::convert::Change;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_engine::options::{Options, RouteName};
use penstock_engine::report::Path;
use penstock_engine::request::{self, Duty, DutyOrder, Request, StreamOrder};
use penstock_engine::{Extent, cores, merged_options};

use super::device::{DeviceRead, DeviceTarget};
use super::host::HostRead;
use super::place::Target;
use super::reading::Reading;
use crate::plan::{Source, Work};
use crate::room::push;
use crate::transfer::read::Prepared;

/// How a request is submitted, besides what it moves.
#[derive(Default)]
pub struct Manner {
    pub options: Options,
    pub stream: Option<StreamOrder>,
    /// The caller goes on meanwhile.
    pub background: bool,
    /// Dropped when the memory is no longer touched.
    pub owner: Option<Box<dyn Any + Send>>,
}

/// Starts a prepared read into the memory at `address`, which is that of the array's first element.
///
/// # Safety
/// The memory that was described when the read was prepared stays valid, and is not touched by
/// others, until the request is finished.
pub unsafe fn submit(prepared: Prepared, address: usize, manner: Manner) -> Result<Request> {
    let start = address.checked_add_signed(prepared.low as isize);
    let is_inside = |start: &usize| start.checked_add(prepared.length as usize).is_some();
    let start = start
        .filter(is_inside)
        .ok_or_else(|| Error::invalid("the array reaches beyond all addresses"))?;
    if prepared.length > 0 && address == 0 {
        return Err(Error::invalid("the buffer is a null pointer"));
    }
    let memory = Memory::at(start)?;
    // Planning goes on here, and finds what the index of chunks says wrong.
    let named = |error: Error| error.in_file(&prepared.path);
    if let [reading] = prepared.readings.as_slice()
        && let Some(extents) = extents(reading, start, memory.context.is_some()).map_err(named)?
        && let Some(Ok(file)) = reading.files.first()
    {
        let mut order = request::Order::new(Operation::Read, &extents, manner.options);
        order.background = manner.background;
        // SAFETY: passed on: the extents lie inside the memory described.
        return unsafe { request::submit(file, order, manner.stream, manner.owner) };
    }
    let options = merged_options(manner.options)?;
    let most = options.threads.map_or(cores()?, |n| n as usize);
    // SAFETY: the caller vouches for the memory.
    let target = unsafe { Target::new(start as *mut u8, prepared.length) };
    let mut note = None;
    let (duty, workers): (Box<dyn Duty>, usize) = match &memory.context {
        None => {
            let duty = HostRead::new(prepared.readings, target);
            let workers = duty.workers(most).map_err(named)?;
            (Box::new(duty), workers)
        }
        Some(context) => {
            let target = DeviceTarget {
                start: start as u64,
                length: prepared.length,
            };
            let is_held = manner.stream.is_some_and(|order| order.before);
            let mut duty =
                DeviceRead::new(prepared.readings, target, context, most, &options, is_held)?;
            note = duty.note.take();
            let workers = duty.workers(most).map_err(named)?;
            (Box::new(duty), workers)
        }
    };
    let order = DutyOrder {
        duty,
        path: prepared.path,
        workers,
        asked: route(&memory),
        context: memory.context,
        block: 0,
        has_turns: false,
        moved: prepared.done,
        moved_by: Path::Hdf5,
        note: prepared.reason.map(through_hdf5).or(note),
    };
    // SAFETY: passed on.
    unsafe { request::submit_duty(order, manner.stream, manner.owner) }
}

/// The route of a duty.
pub(super) fn route(memory: &Memory) -> RouteName {
    match memory.context {
        None => RouteName::Host,
        Some(_) => RouteName::Staged,
    }
}

/// The note of a report.
pub(super) fn through_hdf5(why: String) -> String {
    format!("through HDF5 in host memory: {why}")
}

/// Runs of at least so many bytes are worth a transfer of their own: to host memory and out of
/// contiguous data,
const RUN: u64 = 16 << 10;
/// and out of chunks to a GPU, where each costs a copy, and a kernel places many at a time.
const RUN_OF_CHUNK: u64 = 64 << 10;
const MOST_EXTENTS: usize = 1 << 20;

/// The extents of a transfer that is nothing but moving bytes in long runs; `None` if it is more.
pub(crate) fn extents(
    reading: &Reading,
    start: usize,
    is_gpu: bool,
) -> Result<Option<Vec<Extent>>> {
    let plan = &reading.plan;
    let is_plain = reading.pipeline.filters.is_empty()
        && matches!(reading.change, Change::Copy)
        && plan.item().is_whole()
        && !plan.is_given()
        && !plan.is_external();
    if !is_plain {
        return Ok(None);
    }
    if let Some(range) = plan.one_range() {
        let extent = Extent {
            offset: range.offset,
            length: range.length,
            memory: start + range.target as usize,
        };
        return Ok(Some(vec![extent]));
    }
    let is_chunked = matches!(plan.source(), Source::Chunks(_));
    let least = match is_gpu && is_chunked {
        true => RUN_OF_CHUNK,
        false => RUN,
    };
    let mut extents: Vec<Extent> = Vec::new();
    let mut bytes = 0;
    for work in plan.works() {
        let Work::Chunk(job) = work? else {
            return Ok(None);
        };
        for patch in job.patches(plan) {
            for range in job.ranges(plan, &patch) {
                let memory = start + range.target as usize;
                bytes += range.length;
                match extents.last_mut() {
                    Some(last)
                        if last.offset + last.length == range.offset
                            && last.memory + last.length as usize == memory =>
                    {
                        last.length += range.length;
                    }
                    _ => push(
                        &mut extents,
                        Extent {
                            offset: range.offset,
                            length: range.length,
                            memory,
                        },
                    )?,
                }
                let is_scattered = extents.len() > 16 && bytes / (extents.len() as u64) < least;
                if is_scattered || extents.len() > MOST_EXTENTS {
                    return Ok(None);
                }
            }
        }
    }
    Ok(Some(extents))
}
