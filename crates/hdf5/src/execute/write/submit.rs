//! From a prepared write to a request.

use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::memory::Memory;
use penstock_engine::report::Path;
use penstock_engine::request::{self, Duty, DutyOrder, Request, Share};
use penstock_engine::{Extent, cores, merged_options};

use super::Writing;
use super::blocks::BlockWrite;
use super::chunks::ChunkWrite;
use super::gather::Array;
use super::host::HostArray;
use super::through::ThroughHdf5;
use crate::execute::device::{DeviceTarget, placing};
use crate::execute::submit::{Manner, route, through_hdf5};
use crate::transfer::write::{Prepared, Way};

/// Starts a prepared write from the memory at `address`, which is that of the array's first element.
///
/// # Safety
/// The memory that was described when the write was prepared stays valid, and nobody writes to it,
/// until the request is finished. The dataset stays open as long. Turns are taken on threads that
/// may call HDF5 then.
pub unsafe fn submit(prepared: Prepared, address: usize, manner: Manner) -> Result<Request> {
    let start = usize::try_from(address as i64 + prepared.low)
        .map_err(|_| Error::invalid("the array reaches below address 0"))?;
    if prepared.length > 0 && address == 0 {
        return Err(Error::invalid("the buffer is a null pointer"));
    }
    if let Way::Contiguous(writing, native, Some(ranges)) = &prepared.way
        && let Some(Ok(file)) = writing.reading.files.first()
    {
        let placed = |range: &Extent| Extent {
            memory: start + range.memory,
            ..*range
        };
        let extents: Vec<Extent> = ranges.iter().map(placed).collect();
        let mut order = request::Order::new(Operation::Write, &extents, manner.options);
        order.background = manner.background;
        let native = native.clone();
        let forget = Box::new(move || {
            // SAFETY: a turn is taken on a thread that may call HDF5.
            let session = unsafe { native.session() };
            // A failure leaves HDF5 with what it knew of a dataset that it cannot read either.
            let _ = native.forget_sieve(&session);
        });
        let (stream, owner) = (manner.stream, manner.owner);
        // SAFETY: passed on: the extents lie inside the memory described.
        return unsafe { request::submit_with_turn(file, order, stream, owner, forget) };
    }
    let memory = Memory::at(start)?;
    let options = merged_options(manner.options)?;
    let most = options.threads.map_or(cores()?, |n| n as usize);
    let array = match &memory.context {
        // SAFETY: the caller vouches for the memory.
        None => Array::Host(unsafe { HostArray::new(start as *const u8, prepared.length) }),
        Some(context) => Array::Device {
            memory: DeviceTarget {
                start: start as u64,
                length: prepared.length,
            },
            kernels: placing::kernels(context)?,
            context: Arc::clone(context),
        },
    };
    let path = prepared.path.clone();
    let has_turns = !matches!(prepared.way, Way::Done);
    let (duty, workers): (Box<dyn Duty>, usize) = match prepared.way {
        Way::Done => (Box::new(Done), 1),
        Way::Chunks(writing, native) => {
            let duty = ChunkWrite::new(writing, array, native, path, options.scratch, most);
            let workers = duty.workers();
            (Box::new(duty), workers)
        }
        Way::Contiguous(writing, native, _) => {
            let workers = workers(&writing, most);
            (
                Box::new(BlockWrite::new(writing, array, native, path)),
                workers,
            )
        }
        Way::ThroughHdf5(writing, dense) => {
            let workers = workers(&writing, most);
            let duty = ThroughHdf5::new(writing, array, dense, path)?;
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
        has_turns,
        moved: prepared.done,
        moved_by: Path::Hdf5,
        note: prepared.reason.map(through_hdf5),
    };
    // SAFETY: passed on.
    unsafe { request::submit_duty(order, manner.stream, manner.owner) }
}

fn workers(writing: &Writing, most: usize) -> usize {
    let touched = usize::try_from(writing.reading.plan.touched()).unwrap_or(usize::MAX);
    most.min(touched).max(1)
}

/// The duty of a write that is done.
struct Done;

impl Duty for Done {
    fn serve(&self, _share: &Share<'_>) -> Result<()> {
        Ok(())
    }

    fn named(&self, error: Error) -> Error {
        error
    }

    fn operation(&self) -> Operation {
        Operation::Write
    }
}
