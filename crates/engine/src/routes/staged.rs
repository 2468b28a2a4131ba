//! `staged`: workers fill pinned slots and the copy engine drains them, or the other way round.
//!
//! A lane has two slots, if no other number is asked for, so that one is with the file while the other
//! is with the GPU.

use super::{Lane, Route, Work};
use crate::error::Result;
use crate::file::position::Operation;
use crate::gpu::{Context, Direction, Lent};
use crate::options::RouteName;
use crate::plan::Block;
use crate::report::Path;
use crate::staging::Slot;
use std::iter;
use std::sync::Arc;

pub(crate) struct Staged;

impl Route for Staged {
    fn name(&self) -> RouteName {
        RouteName::Staged
    }
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        Ok(Box::new(StagedLane::new(work)?))
    }
}

/// Slots and what is going on in them.
struct StagedLane<'a> {
    work: Work<'a>,
    // Dropped first: ends all copies before the slots go back to the ring.
    lent: Lent<'a>,
    slots: Vec<Option<Slot>>,
    /// What the copy under way in each slot is about.
    under_way: Vec<Option<Loaded>>,
    /// The slot that comes next: of those in use, the one for the longest time.
    turn: usize,
    /// No block was taken on yet, so the GPU has nothing to do.
    idle: bool,
}

/// A block whose copy between slot and GPU has been queued.
struct Loaded {
    block: Block,
    /// How the file's side of it went, for a read; to be gone, for a write.
    direct: bool,
}

impl<'a> StagedLane<'a> {
    fn new(work: Work<'a>) -> Result<Self> {
        let context = work.gpu_context()?;
        let slots = work.slots.max(1) as usize;
        Ok(StagedLane {
            work,
            lent: Lent::new(context)?,
            slots: (0..slots).map(|_| None).collect(),
            under_way: (0..slots).map(|_| None).collect(),
            turn: 0,
            idle: true,
        })
    }

    /// The slot whose turn it is, with nothing under way in it.
    fn next_slot(&mut self) -> Result<usize> {
        let mut index = self.turn;
        if self.slots[index].is_none() {
            let bytes = self.work.plan.slot_bytes;
            let context = Some(self.lent.context());
            if self.slots.iter().all(Option::is_none) {
                self.slots[index] = Some(self.work.ring.slot(bytes, context)?);
            } else {
                // Holding one slot, a lane must not wait for another; it can do with fewer.
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
        self.settle(index)?;
        self.turn = self.after(index);
        Ok(index)
    }

    fn after(&self, index: usize) -> usize {
        (index + 1) % self.slots.len()
    }

    /// Finishes what is under way in a slot: for a read the copy to the GPU; for a write the copy
    /// from the GPU, and then the file gets the bytes.
    fn settle(&mut self, index: usize) -> Result<()> {
        let Some(loaded) = self.under_way[index].take() else {
            return Ok(());
        };
        self.lent.queue()?.wait(index)?;
        let mut direct = loaded.direct;
        if self.work.operation == Operation::Write {
            direct = self.move_spans(index, &loaded.block, direct)?;
        }
        let path = if direct {
            Path::StagedDirect
        } else {
            Path::StagedBuffered
        };
        self.work.counters.moved(path, loaded.block.bytes);
        Ok(())
    }

    /// The file's side of a block. Returns whether all of it went past the page cache.
    fn move_spans(&self, index: usize, block: &Block, direct: bool) -> Result<bool> {
        let start = self.slot_start(index);
        let mut all_direct = direct;
        for span in self.work.plan.spans(block) {
            // SAFETY: the slot is this lane's, has room for the block, and no copy is under way
            // in it: `settle` or the event before saw to that.
            all_direct &= unsafe { self.work.move_span(direct, span, start)? };
        }
        Ok(all_direct)
    }

    fn is_one_run(&self, block: &Block) -> bool {
        let plan = self.work.plan;
        plan.spans(block).len() == 1 && plan.copies(block).len() == 1
    }

    /// Reads a block that is one run in file and memory, with a copy to the GPU after each step:
    /// so the GPU starts before the first block is in.
    fn load_in_steps(&mut self, index: usize, block: &Block) -> Result<()> {
        const STEP: u64 = 1 << 20;
        let start = self.slot_start(index);
        let queue = self.lent.queue()?;
        for (span, copy) in iter::zip(self.work.plan.spans(block), self.work.plan.copies(block)) {
            // The span may begin before the copy, with bytes that nobody asked for.
            let offset = span.offset + (copy.slot_offset - span.slot_offset);
            for done in (0..copy.length).step_by(STEP as usize) {
                let length = STEP.min(copy.length - done);
                self.work.counters.copy();
                // SAFETY: as for `move_spans` and `queue_copies`, part by part.
                unsafe {
                    let at = start.add((copy.slot_offset + done) as usize);
                    self.work.move_buffered(at, offset + done, length)?;
                    queue.copy(Direction::ToGpu, at, copy.memory as u64 + done, length)?;
                }
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
        for copy in self.work.plan.copies(block) {
            self.work.counters.copy();
            // SAFETY: the slot part is within the slot, which is not touched before `settle` has
            // waited for the mark below; the submitter vouches for the GPU memory.
            unsafe {
                let host = start.add(copy.slot_offset as usize);
                queue.copy(direction, host, copy.memory as u64, copy.length)?;
            }
        }
        queue.mark(index)
    }
}

impl Lane for StagedLane<'_> {
    fn carry(&mut self, block: &Block) -> Result<()> {
        let index = self.next_slot()?;
        let direct = self.work.goes_direct(block);
        let direct = match self.work.operation {
            Operation::Read if self.idle && !direct && self.is_one_run(block) => {
                self.load_in_steps(index, block)?;
                false
            }
            Operation::Read => {
                let direct = self.move_spans(index, block, direct)?;
                self.queue_copies(index, block, Direction::ToGpu)?;
                direct
            }
            Operation::Write => {
                self.queue_copies(index, block, Direction::FromGpu)?;
                direct
            }
        };
        self.idle = false;
        self.under_way[index] = Some(Loaded {
            block: block.clone(),
            direct,
        });
        if self.work.operation == Operation::Write {
            // While this block comes from the GPU, an earlier one goes to the file.
            self.settle(self.turn)?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        let mut index = self.turn;
        for _ in 0..self.slots.len() {
            self.settle(index)?;
            index = self.after(index);
        }
        self.lent.queue()?.finish()
    }
}

impl<'a> Work<'a> {
    /// The context of GPU memory; the routes that need one are chosen for such memory only.
    pub(super) fn gpu_context(&self) -> Result<&'a Arc<Context>> {
        self.memory.context.as_ref().ok_or_else(|| {
            crate::error::Error::new(
                crate::error::Kind::Internal,
                "a GPU route was chosen for host memory",
            )
        })
    }
}
