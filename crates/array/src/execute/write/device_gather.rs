//! Gathers elements on the GPU with the kernel that also places them, and copies them to pinned
//! slots.

use std::sync::Arc;

use penstock_codec::convert::TypeConversion;
use penstock_codec::gpu::{Kernels, PlaceTable, Shuffles, Side};
use penstock_engine::error::{Kind, Result};
use penstock_engine::gpu::{Direction, OwnContext, QueueLease};
use penstock_engine::request::Share;
use penstock_engine::staging::Slot;

use super::before::Room;
use super::filled::Filled;
use super::queue::{BATCH, Numbered};
use crate::execute::bound::BoundPlan;
use crate::execute::device::ALIGNMENT;
use crate::execute::device::placing::{gpu_error, internal, push_gathered};
use crate::execute::device::scratch::{Held, Scratch, wait_for_memory};
use crate::execute::elements::merge;
use crate::execute::memory::DeviceMemory;
use crate::{Before, ChunkJob, StridedBox};

/// The pinned slots of one worker, which encodes the chunks of one slot while those of the other
/// are copied.
pub(super) struct DeviceGather<'a> {
    // Dropped first, so that it waits for all copies before the slots are returned.
    lent: QueueLease<'a>,
    bound: &'a BoundPlan,
    memory: DeviceMemory,
    kernels: &'a Kernels,
    share: &'a Share<'a>,
    when_full: WhenFull<'a>,
    landings: Vec<Landing>,
    held: Held,
    table: PlaceTable,
    room: Room,
}

/// Called when a worker lacks GPU memory, before it waits for other workers to return memory.
pub(super) type WhenFull<'a> = &'a dyn Fn();

/// A slot, and GPU memory in which chunks are assembled.
struct Landing {
    slot: Slot,
    /// `None` while all chunks are copied directly from the caller's memory to the slot.
    scratch: Option<Scratch>,
}

impl Landing {
    fn new(slot: Slot) -> Landing {
        Landing {
            slot,
            scratch: None,
        }
    }
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
        (context, kernels): (&'a Arc<OwnContext>, &'a Kernels),
        share: &'a Share<'a>,
        when_full: WhenFull<'a>,
    ) -> Result<DeviceGather<'a>> {
        let conversion = bound.conversion;
        let table = PlaceTable::new(conversion, bound.plan.element().length, Shuffles::default());
        Ok(DeviceGather {
            lent: QueueLease::new(context)?,
            bound,
            memory,
            kernels,
            share,
            when_full,
            landings: Vec::new(),
            held: Held::default(),
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
                let in_parts = self.is_in_parts(&batch);
                let free = match &before {
                    None => None,
                    Some(arriving) => self.other_landing(arriving.landing, in_parts)?,
                };
                let free = match free {
                    Some(landing) => Some(landing),
                    None => {
                        // With a single landing, one batch follows the other.
                        self.finish(before.take(), done)?;
                        self.free_landing(in_parts)?
                    }
                };
                let Some(landing) = free else {
                    break;
                };
                next = Some(self.begin(batch, landing)?);
            }
            self.finish(before.take(), done)?;
            before = next;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Returns whether a batch needs GPU memory in which its chunks are assembled.
    fn is_in_parts(&self, batch: &[Numbered]) -> bool {
        let mut jobs = batch.iter().map(|numbered| &numbered.changed.job);
        jobs.any(|job| self.whole(job).is_none())
    }

    /// Returns the place in the caller's memory of a chunk that is written as it is.
    fn whole(&self, job: &ChunkJob) -> Option<u64> {
        match self.bound.conversion {
            TypeConversion::Copy => job.whole(&self.bound.plan),
            _ => None,
        }
    }

    /// Waits for all work in flight, then returns slots and memory.
    pub(super) fn drain(&mut self) -> Result<()> {
        let queue = self.lent.queue()?;
        for landing in &self.landings {
            if let Some(scratch) = &landing.scratch {
                scratch.release(queue);
            }
        }
        // After the release, which happens in the order of the queue.
        let finished = queue.finish();
        self.landings.clear();
        self.held.returned();
        finished
    }

    /// Returns the slot size that is enough for any batch.
    fn slot_size(&self) -> u64 {
        let chunk = self.bound.plan.decoded_size();
        BATCH.max(chunk.next_multiple_of(ALIGNMENT as u64)) + TABLES as u64
    }

    /// Returns a landing, while no copy uses any. It has GPU memory if the batch goes there
    /// `in_parts`. If no memory is left, waits until other workers return some. Returns `None` if
    /// the request is stopping.
    fn free_landing(&mut self, in_parts: bool) -> Result<Option<usize>> {
        while !self.share.stopping() {
            if self.landings.is_empty() {
                let (size, context) = (self.slot_size(), self.lent.context());
                let slot = self.share.ring().slot(size, Some(context))?;
                self.landings.push(Landing::new(slot));
            }
            if !in_parts {
                return Ok(Some(0));
            }
            let has_scratch = |landing: &Landing| landing.scratch.is_some();
            if let Some(landing) = self.landings.iter().position(has_scratch) {
                return Ok(Some(landing));
            }
            let seen = self.lent.context().memory_returns();
            match self.scratch(0) {
                Err(error) if error.kind() == Kind::Memory => {
                    self.drain()?;
                    (self.when_full)();
                    // This worker holds neither memory nor slots.
                    let is_over = || Ok(self.share.stopping());
                    wait_for_memory(self.lent.context(), seen, error, is_over)?;
                }
                taken => return taken.map(|_| Some(0)),
            }
        }
        Ok(None)
    }

    /// Returns the landing that is not `taken`. Returns `None` if there is no slot or no memory for
    /// it.
    fn other_landing(&mut self, taken: usize, in_parts: bool) -> Result<Option<usize>> {
        if self.landings.len() < 2 {
            let (size, context) = (self.slot_size(), self.lent.context());
            // A worker that holds one slot must not wait for another.
            let Some(slot) = self.share.ring().further_slot(size, Some(context))? else {
                return Ok(None);
            };
            self.landings.push(Landing::new(slot));
        }
        let other = 1 - taken;
        if !in_parts {
            return Ok(Some(other));
        }
        match self.scratch(other) {
            Err(error) if error.kind() == Kind::Memory => Ok(None),
            scratch => scratch.map(|_| Some(other)),
        }
    }

    /// Queues all work that brings chunks to a free slot.
    fn begin(&mut self, batch: Vec<Numbered>, landing: usize) -> Result<Arriving> {
        let plan = &self.bound.plan;
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
            if let Some(from) = self.whole(job) {
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
        assert!(at + size <= slot.bytes().min(self.scratch_size() as usize));
        self.share.counters().copy();
        // SAFETY: slot and scratch are this worker's own, both large enough, and untouched until the
        // queue has reached the next mark. The kernel reads the caller's memory, which stays valid,
        // and writes to the scratch; the table has checked both ranges.
        unsafe {
            let host = slot.start().add(at);
            self.table.write(std::slice::from_raw_parts_mut(host, size));
            let context = self.lent.context();
            let queue = self.lent.queue()?;
            queue.copy(Direction::ToGpu, host, scratch, size as u64)?;
            self.kernels
                .place(&self.table, scratch, queue.raw_stream())
                .map_err(|e| gpu_error(context, &e))?;
        }
        self.table.clear();
        Ok(())
    }

    /// Returns the bytes of GPU memory of a landing. Its slot may be much larger, and GPU memory is scarcer.
    fn scratch_size(&self) -> u64 {
        self.slot_size().next_power_of_two()
    }

    fn scratch(&mut self, landing: usize) -> Result<u64> {
        let bytes = self.scratch_size();
        let landing = &mut self.landings[landing];
        if let Some(scratch) = &landing.scratch {
            return Ok(scratch.address);
        }
        let context = self.lent.context();
        let queue = self.lent.queue()?;
        let taken = self.held.take(context, || Scratch::new(queue, bytes));
        Ok(landing.scratch.insert(taken?).address)
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
