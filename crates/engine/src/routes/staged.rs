//! `staged`: workers fill pinned slots, and the copy engine of the GPU empties them; or the reverse
//! for a write.
//!
//! A lane has two slots, unless the options say otherwise, so that the worker fills one while the GPU
//! empties the other.

use super::near::NearRanges;
use super::{Lane, Route, Work};
use crate::error::Result;
use crate::file::position::Operation;
use crate::file::reader::Reader;
use crate::gpu::{Context, CopyQueue, Direction, OwnContext, QueueLease};
use crate::options::RouteName;
use crate::plan::{Block, Extent, SlotCopy, Span};
use crate::report::Path;
use crate::staging::Slot;
use std::sync::Arc;

pub(crate) struct Staged;

/// Bytes of a copy of the first block of a lane, so that the GPU need not wait for the whole block.
const FIRST_STEP: u64 = 1 << 20;

impl Route for Staged {
    fn name(&self) -> RouteName {
        RouteName::Staged
    }
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        Ok(Box::new(StagedLane::new(work)?))
    }
}

/// A worker's slots and the copies in flight in them.
struct StagedLane<'a> {
    work: Work<'a>,
    /// Of the descriptor in `work`.
    _reader: Option<Reader<'a>>,
    near: NearRanges,
    // Dropped before the slots: dropping this waits for all copies, and the slots then return to
    // the ring.
    lent: QueueLease<'a>,
    slots: Vec<Option<Slot>>,
    /// The block whose copy is in flight in each slot.
    in_flight: Vec<Option<Loaded>>,
    /// The slot to use next: of those in use, the one that was used first.
    turn: usize,
    /// Whether no block has been moved yet, so that the GPU is idle.
    idle: bool,
}

/// A block whose copy between slot and GPU has been queued.
struct Loaded {
    bytes: u64,
    /// The block of a write, whose bytes go to the file after the copy.
    to_write: Option<Block>,
    /// Whether the file's side of a read bypassed the page cache, or that of a write will.
    direct: bool,
}

impl<'a> StagedLane<'a> {
    fn new(mut work: Work<'a>) -> Result<Self> {
        let context = work.own_context()?;
        let slots = work.slots.max(1) as usize;
        let reader = work.take_reader();
        Ok(StagedLane {
            work,
            _reader: reader,
            near: NearRanges::default(),
            lent: QueueLease::new(context)?,
            slots: (0..slots).map(|_| None).collect(),
            in_flight: (0..slots).map(|_| None).collect(),
            turn: 0,
            idle: true,
        })
    }

    /// The slot to use next, after the copy in it is done.
    fn next_slot(&mut self) -> Result<usize> {
        let mut index = self.turn;
        if self.slots[index].is_none() {
            let bytes = self.work.plan.slot_bytes;
            let context = Some(self.lent.context());
            if self.slots.iter().all(Option::is_none) {
                self.slots[index] = Some(self.work.ring.slot(bytes, context)?);
            } else {
                // A lane with a slot must not wait for another. It can work with fewer slots.
                match self.work.ring.further_slot(bytes, context)? {
                    Some(slot) => self.slots[index] = Some(slot),
                    None => {
                        while self.slots[index].is_none() {
                            index = self.after(index);
                        }
                    }
                }
            }
        }
        self.finish(index)?;
        self.turn = self.after(index);
        Ok(index)
    }

    fn after(&self, index: usize) -> usize {
        (index + 1) % self.slots.len()
    }

    /// Waits for the copy in a slot and, for a write, then writes the bytes to the file.
    fn finish(&mut self, index: usize) -> Result<()> {
        let Some(loaded) = self.in_flight[index].take() else {
            return Ok(());
        };
        self.lent.queue()?.wait(index)?;
        let mut direct = loaded.direct;
        if let Some(block) = &loaded.to_write {
            direct = self.move_spans(index, block, direct)?;
        }
        let path = if direct {
            Path::StagedDirect
        } else {
            Path::StagedBuffered
        };
        self.work.counters.moved(path, loaded.bytes);
        Ok(())
    }

    /// Moves a block between file and slot. Returns whether all of it bypassed the page cache.
    fn move_spans(&mut self, index: usize, block: &Block, direct: bool) -> Result<bool> {
        let start = self.slot_start(index);
        let spans = self.work.plan.spans(block);
        if !direct && (spans.len() > 1 || spans.iter().any(|span| span.reads > 1)) {
            let in_slot = |span: &Span| span.in_slot(start);
            let ranges: Vec<Extent> = spans.iter().flat_map(in_slot).collect();
            // SAFETY: as below; the planner keeps spans within the slot, apart from each other.
            unsafe { self.near.transfer(&self.work, &ranges)? };
            return Ok(false);
        }
        let mut all_direct = direct;
        for span in spans {
            // SAFETY: the slot is this lane's and holds the block. No copy is in flight in it: the
            // caller has waited for the last one.
            all_direct &= unsafe { self.work.move_span(direct, span, start)? };
        }
        Ok(all_direct)
    }

    /// The range of a block that is contiguous in file and memory, and its place in the slot.
    fn as_range(&self, block: &Block) -> Option<(Extent, u64)> {
        let plan = self.work.plan;
        let ([span @ Span { reads: 1, .. }], [copy @ SlotCopy { rows: 1, .. }]) =
            (plan.spans(block), plan.copies(block))
        else {
            return None;
        };
        let range = Extent {
            // The span may start before the copy, with bytes that the caller does not want.
            offset: span.offset + (copy.slot_offset - span.slot_offset),
            length: copy.length,
            memory: copy.memory,
        };
        Some((range, copy.slot_offset))
    }

    /// Reads a range through the page cache into a slot, with a copy to the GPU after each `step`
    /// bytes.
    fn load(&mut self, index: usize, range: &Extent, slot_offset: u64, step: u64) -> Result<()> {
        let start = self.slot_start(index);
        let queue = self.lent.queue()?;
        for done in (0..range.length).step_by(step as usize) {
            let length = step.min(range.length - done);
            self.work.counters.copy();
            // SAFETY: as for `move_spans` and `queue_copies`, part by part.
            unsafe {
                let at = start.add((slot_offset + done) as usize);
                self.work.move_buffered(at, range.offset + done, length)?;
                queue.copy(Direction::ToGpu, at, range.memory as u64 + done, length)?;
            }
        }
        queue.mark(index)
    }

    fn slot_start(&self, index: usize) -> *mut u8 {
        self.slots[index]
            .as_ref()
            .map_or(std::ptr::null_mut(), Slot::start)
    }

    fn queue_copies(&mut self, index: usize, block: &Block, direction: Direction) -> Result<()> {
        let start = self.slot_start(index);
        let queue = self.lent.queue()?;
        // SAFETY: nothing touches the slot before `finish` has waited for the mark below; the
        // submitter vouches for the GPU memory.
        unsafe { self.work.queue_copies(queue, block, start, direction)? };
        queue.mark(index)
    }
}

impl Lane for StagedLane<'_> {
    fn carry(&mut self, block: &Block) -> Result<()> {
        let index = self.next_slot()?;
        let mut direct = self.work.goes_direct(block);
        let is_write = self.work.operation == Operation::Write;
        match self.as_range(block).filter(|_| self.idle && !direct) {
            _ if is_write => self.queue_copies(index, block, Direction::FromGpu)?,
            Some((range, slot_offset)) => self.load(index, &range, slot_offset, FIRST_STEP)?,
            None => {
                direct = self.move_spans(index, block, direct)?;
                self.queue_copies(index, block, Direction::ToGpu)?;
            }
        }
        self.idle = false;
        self.in_flight[index] = Some(Loaded {
            bytes: block.bytes,
            to_write: is_write.then(|| block.clone()),
            direct,
        });
        if is_write {
            // An earlier block is written to the file while this one is copied from the GPU.
            self.finish(self.turn)?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        let mut index = self.turn;
        for _ in 0..self.slots.len() {
            self.finish(index)?;
            index = self.after(index);
        }
        self.lent.queue()?.finish()
    }
}

impl<'a> Work<'a> {
    /// The engine's context for the GPU memory. Routes that need one are chosen only for such memory.
    pub(super) fn own_context(&self) -> Result<&'a Arc<OwnContext>> {
        let own = self.gpu_context()?.own()?;
        if let Some(note) = own.note() {
            self.counters.note(note);
        }
        Ok(own)
    }

    /// Queues the copies of a block between its slot, at `start`, and the GPU.
    ///
    /// # Safety
    /// As for [`CopyQueue::copy_all`], for the slot and the GPU memory of the block.
    pub(super) unsafe fn queue_copies(
        &self,
        queue: &mut CopyQueue,
        block: &Block,
        start: *mut u8,
        direction: Direction,
    ) -> Result<()> {
        let copies = self.plan.copies(block).iter().map(|copy| {
            self.counters.copy();
            copy.rows_at(start)
        });
        // SAFETY: the copies lie within the slot; the rest is passed on.
        unsafe { queue.copy_all(direction, copies) }
    }

    /// The program's context, to which the memory belongs.
    pub(super) fn gpu_context(&self) -> Result<&'a Arc<Context>> {
        self.memory.context.as_ref().ok_or_else(|| {
            crate::error::Error::new(
                crate::error::Kind::Internal,
                "a GPU route was chosen for host memory",
            )
        })
    }
}
