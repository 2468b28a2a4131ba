//! Gathers elements on the GPU with the kernel that also places them, and copies them to pinned
//! slots.

use std::sync::Arc;

use penstock_codec::convert::TypeConversion;
use penstock_codec::gpu::{Kernels, PlaceTable, Shuffles, Side};
use penstock_engine::error::{Kind, Result};
use penstock_engine::gpu::{Context, Direction, Lent};
use penstock_engine::request::Share;
use penstock_engine::staging::Slot;

use super::before::Room;
use super::gather::Filled;
use super::queue::{BATCH, Numbered};
use crate::execute::bound::BoundPlan;
use crate::execute::device::ALIGNMENT;
use crate::execute::device::placing::{gpu_error, internal, push_gathered};
use crate::execute::device::scratch::Scratch;
use crate::execute::elements::merge;
use crate::execute::memory::DeviceMemory;
use crate::{Before, StridedBox};

/// The pinned slots of one worker: it encodes the chunks of one slot while those of the other are
/// copied.
pub(super) struct DeviceGather<'a> {
    // Dropped first, so that it waits for all copies before the slots are returned.
    lent: Lent<'a>,
    bound: &'a BoundPlan,
    memory: DeviceMemory,
    kernels: &'a Kernels,
    share: &'a Share<'a>,
    retry: Retry<'a>,
    landings: Vec<Landing>,
    table: PlaceTable,
    room: Room,
}

/// Calls a function once others have released GPU memory, and while they take none. It must not need a slot
/// to be released, since a worker that calls it holds some.
pub(super) type Retry<'a> = &'a dyn Fn(&mut dyn FnMut());

/// A slot, and GPU memory of its size in which chunks are assembled.
struct Landing {
    slot: Slot,
    scratch: Option<Scratch>,
}

/// Chunks that are being copied to a slot.
struct Arriving {
    landing: usize,
    batch: Vec<Numbered>,
    /// Offset of each chunk in the slot.
    places: Vec<usize>,
}

/// Room for the kernel's tables after the chunks of a slot.
const TABLES: usize = 512 << 10;
/// Largest table entry of one box.
const LARGEST_BOX: usize = 2048;

impl<'a> DeviceGather<'a> {
    pub(super) fn new(
        bound: &'a BoundPlan,
        memory: DeviceMemory,
        (context, kernels): (&'a Arc<Context>, &'a Kernels),
        share: &'a Share<'a>,
        retry: Retry<'a>,
    ) -> Result<DeviceGather<'a>> {
        let conversion = bound.conversion;
        let table = PlaceTable::new(conversion, bound.plan.element().length, Shuffles::default());
        Ok(DeviceGather {
            lent: Lent::new(context)?,
            bound,
            memory,
            kernels,
            share,
            retry,
            landings: Vec::new(),
            table: table.map_err(internal)?,
            room: Room::default(),
        })
    }

    pub(super) fn each(
        &mut self,
        take: &mut impl FnMut() -> Result<Vec<Numbered>>,
        done: &mut impl FnMut(&Numbered, Filled<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut before: Option<Arriving> = None;
        while !self.share.stopping() {
            let batch = take()?;
            let is_last = batch.is_empty();
            let mut next = None;
            if !is_last {
                self.share.joined();
                let free = match &before {
                    None => self.first_landing()?,
                    Some(arriving) => self.other_landing(arriving.landing)?,
                };
                next = match free {
                    Some(landing) => Some(self.begin(batch, landing)?),
                    None => {
                        // With a single slot, one batch follows the other.
                        let landing = before.as_ref().map_or(0, |arriving| arriving.landing);
                        self.finish(before.take(), done)?;
                        Some(self.begin(batch, landing)?)
                    }
                };
            }
            self.finish(before.take(), done)?;
            before = next;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Waits for all work in flight, then returns slots and memory.
    pub(super) fn drain(&mut self) -> Result<()> {
        let queue = self.lent.queue()?;
        let finished = queue.finish();
        for landing in self.landings.drain(..) {
            if let Some(scratch) = landing.scratch {
                scratch.release(queue);
            }
        }
        finished
    }

    /// Returns the slot size that is enough for any batch.
    fn slot_size(&self) -> u64 {
        let chunk = self.bound.plan.decoded_size();
        BATCH.max(chunk.next_multiple_of(ALIGNMENT as u64)) + TABLES as u64
    }

    fn first_landing(&mut self) -> Result<Option<usize>> {
        if self.landings.is_empty() {
            let (size, context) = (self.slot_size(), self.lent.context());
            let slot = self.share.ring().slot(size, Some(context))?;
            self.landings.push(Landing {
                slot,
                scratch: None,
            });
        }
        Ok(Some(0))
    }

    fn other_landing(&mut self, taken: usize) -> Result<Option<usize>> {
        if self.landings.len() < 2 {
            let (size, context) = (self.slot_size(), self.lent.context());
            // A worker that holds one slot must not wait for another.
            let Some(slot) = self.share.ring().further_slot(size, Some(context))? else {
                return Ok(None);
            };
            self.landings.push(Landing {
                slot,
                scratch: None,
            });
        }
        Ok(Some(1 - taken))
    }

    /// Queues all work that brings chunks to a free slot.
    fn begin(&mut self, batch: Vec<Numbered>, landing: usize) -> Result<Arriving> {
        let plan = &self.bound.plan;
        let is_copy = matches!(self.bound.conversion, TypeConversion::Copy);
        let sizes = batch.iter().map(|n| n.changed.job.decoded_size as usize);
        let mut used = 0;
        let places: Vec<usize> = sizes
            .map(|size| {
                let at = used;
                used = (at + size).next_multiple_of(ALIGNMENT);
                at
            })
            .collect();
        let mut gathered: Vec<(usize, usize)> = Vec::new();
        for (numbered, at) in batch.iter().zip(&places) {
            let job = &numbered.changed.job;
            let length = job.decoded_size as usize;
            if let (true, Some(from)) = (is_copy, job.whole(plan)) {
                let address = self.memory.start + from;
                self.download(landing, *at, address, length)?;
                continue;
            }
            let scratch = self.scratch(landing)?;
            for strided in job.boxes(plan) {
                self.push(&strided, scratch + *at as u64, job.decoded_size)?;
                if self.table.size() + LARGEST_BOX > TABLES {
                    self.launch(landing, used)?;
                    // The next table reuses the memory of this one.
                    self.lent.queue()?.finish()?;
                }
            }
            match gathered.last_mut() {
                Some((from, size)) if (*from + *size).next_multiple_of(ALIGNMENT) == *at => {
                    *size = at + length - *from;
                }
                _ => gathered.push((*at, length)),
            }
        }
        self.launch(landing, used)?;
        for (at, length) in gathered {
            let address = self.scratch(landing)? + at as u64;
            self.download(landing, at, address, length)?;
        }
        self.lent.queue()?.mark(landing)?;
        Ok(Arriving {
            landing,
            batch,
            places,
        })
    }

    fn push(&mut self, strided: &StridedBox, chunk: u64, length: u64) -> Result<()> {
        let chunk = Side {
            address: chunk,
            length,
            offset: 0,
            shuffled: 0,
        };
        let element = &self.bound.plan.element();
        push_gathered(&mut self.table, element, strided, self.memory, chunk)
    }

    /// Launches the kernel with the table, which is uploaded from after the chunks of the slot.
    fn launch(&mut self, landing: usize, at: usize) -> Result<()> {
        if self.table.is_empty() {
            return Ok(());
        }
        let size = self.table.size();
        let scratch = self.scratch(landing)? + at as u64;
        let slot = &self.landings[landing].slot;
        assert!(at + size <= slot.bytes());
        self.share.counters().copy();
        // SAFETY: slot and scratch are this worker's own, of equal size, and untouched until the
        // queue has reached the next mark. The kernel reads the caller's memory, which stays valid,
        // and writes to the scratch; the table has checked both ranges.
        unsafe {
            let host = slot.start().add(at);
            self.table.write(std::slice::from_raw_parts_mut(host, size));
            let context = self.lent.context();
            let queue = self.lent.queue()?;
            queue.copy(Direction::ToGpu, host, scratch, size as u64)?;
            self.kernels
                .place(&self.table, scratch, queue.lend_stream())
                .map_err(|e| gpu_error(context, &e))?;
        }
        self.table.clear();
        Ok(())
    }

    fn scratch(&mut self, landing: usize) -> Result<u64> {
        let landing = &mut self.landings[landing];
        if let Some(scratch) = &landing.scratch {
            return Ok(scratch.address);
        }
        let bytes = landing.slot.bytes() as u64;
        let queue = self.lent.queue()?;
        let scratch = match Scratch::new(queue, bytes) {
            Err(error) if error.kind() == Kind::Memory => {
                let mut again = Err(error);
                (self.retry)(&mut || again = Scratch::new(queue, bytes));
                again?
            }
            scratch => scratch?,
        };
        Ok(landing.scratch.insert(scratch).address)
    }

    fn download(&mut self, landing: usize, at: usize, address: u64, length: usize) -> Result<()> {
        let slot = &self.landings[landing].slot;
        assert!(at + length <= slot.bytes());
        self.share.counters().copy();
        // SAFETY: the ranges lie inside this worker's slot, and inside the scratch or the caller's
        // memory, as the plan has checked; both stay valid until the queue has reached the next
        // mark.
        unsafe {
            let host = slot.start().add(at);
            self.lent
                .queue()?
                .copy(Direction::FromGpu, host, address, length as u64)
        }
    }

    /// Waits for the chunks of a slot and hands them on.
    fn finish(
        &mut self,
        arriving: Option<Arriving>,
        done: &mut impl FnMut(&Numbered, Filled<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(Arriving {
            landing,
            batch,
            places,
        }) = arriving
        else {
            return Ok(());
        };
        self.lent.queue()?.wait(landing)?;
        let plan = &self.bound.plan;
        let counters = self.share.counters();
        let slot = &self.landings[landing].slot;
        for (numbered, at) in batch.iter().zip(places) {
            if self.share.stopping() {
                break;
            }
            let changed = &numbered.changed;
            let length = changed.job.decoded_size as usize;
            assert!(at + length <= slot.bytes());
            // SAFETY: the range lies inside the slot, whose copies have finished.
            let arrived = unsafe { std::slice::from_raw_parts(slot.start().add(at), length) };
            let bytes = if changed.before == Before::Nothing {
                arrived
            } else {
                let before = self.bound.before(changed, counters, &mut self.room)?;
                let boxes = changed.job.boxes(plan);
                merge(boxes, plan.file_element(), arrived, before);
                before
            };
            let filled = Filled {
                bytes,
                stays: false,
            };
            done(numbered, filled)?;
        }
        Ok(())
    }
}
