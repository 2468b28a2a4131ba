//! The lane of both io_uring routes. A block passes through a stage, which is a slot with the state
//! of its block, or moves straight between the file and host memory.
//!
//! For a read, the kernel fills the slot before the GPU (or, for host memory, `memcpy`) empties it;
//! for a write, the reverse. [`carry`](Lane::carry) never waits for its own block, only for earlier
//! ones.

use std::collections::VecDeque;
use std::ptr;

use super::transfers::{Done, FileTransfer, Transfers};
use crate::error::Result;
use crate::file::position::Operation;
use crate::gpu::{Direction, QueueLease};
use crate::plan::{Block, Extent, Span};
use crate::report::Path;
use crate::routes::{Direct, Lane, Work};
use crate::staging::Slot;

pub(super) struct UringLane<'a> {
    work: Work<'a>,
    // The order of the next three fields matters when the lane is dropped with blocks in flight: the
    // kernel finishes with slots and host memory, then the GPU with slots and its memory, and then
    // the slots go back to the ring.
    io: Transfers<'a>,
    /// `None` for host memory.
    gpu: Option<QueueLease<'a>>,
    stages: Vec<Stage>,
    idle: Vec<usize>,
    /// Stages whose copies the GPU has not finished, in the order in which they were queued.
    copying: VecDeque<usize>,
    /// The most stages.
    most: usize,
    /// Whether no fixed buffers are registered, because they do not pay here or the kernel has
    /// refused one.
    plain: bool,
}

/// A slot and the block in it.
struct Stage {
    slot: Slot,
    block: Block,
    /// Whether the block bypasses the page cache, and has done so up to now.
    direct: bool,
    /// Transfers of the block that are not done.
    left: usize,
    /// Blocks that have used the stage.
    uses: u64,
    /// Whether the slot is a fixed buffer of the kernel ring.
    fixed: bool,
}

/// A lane takes at most this fraction of the ring, but always two slots, because other requests
/// need some.
const SHARE: u64 = 16;

impl<'a> UringLane<'a> {
    /// `gpu` is `None` for host memory.
    pub(crate) fn new(work: Work<'a>, io: Transfers<'a>, gpu: Option<QueueLease<'a>>) -> Self {
        let affordable = work.ring.capacity() / SHARE / work.plan.slot_bytes.max(1);
        let most = affordable.min(work.queue_depth.into()).max(2) as usize;
        UringLane {
            work,
            io,
            gpu,
            stages: Vec::new(),
            idle: Vec::new(),
            copying: VecDeque::new(),
            most,
            plain: work.direct == Direct::Never,
        }
    }

    /// Handles what has completed and starts what can start, without waiting.
    fn advance(&mut self) -> Result<()> {
        self.io.advance()?;
        while let Some(done) = self.io.next_done() {
            self.transferred(&done)?;
        }
        while let (Some(&index), Some(gpu)) = (self.copying.front(), &mut self.gpu) {
            if !gpu.queue()?.passed(index)? {
                break;
            }
            self.copying.pop_front();
            self.copied(index);
        }
        self.io.start()
    }

    /// As [`advance`](Self::advance), but first waits for a completion: of a transfer, if other
    /// transfers wait for its place, or else of the next copy.
    fn wait(&mut self) -> Result<()> {
        match (self.copying.front(), &mut self.gpu) {
            (Some(&index), Some(gpu)) if !self.io.is_crowded() => gpu.queue()?.wait(index)?,
            _ => self.io.wait()?,
        }
        self.advance()
    }

    fn transferred(&mut self, done: &Done) -> Result<()> {
        let Some(index) = done.stage else {
            self.work.counters.moved(self.path(done.direct), done.bytes);
            return Ok(());
        };
        let stage = &mut self.stages[index];
        stage.left -= 1;
        stage.direct &= done.direct;
        if stage.left > 0 {
            return Ok(());
        }
        match self.work.operation {
            Operation::Read => self.start_copies(index),
            Operation::Write => {
                self.retire(index);
                Ok(())
            }
        }
    }

    fn copied(&mut self, index: usize) {
        match self.work.operation {
            Operation::Read => self.retire(index),
            Operation::Write => self.start_transfers(index),
        }
    }

    /// Counts a block that has moved, and makes its stage idle.
    fn retire(&mut self, index: usize) {
        let stage = &self.stages[index];
        let path = self.path(stage.direct);
        self.work.counters.moved(path, stage.block.bytes);
        self.idle.push(index);
    }

    fn path(&self, direct: bool) -> Path {
        match (&self.gpu, direct) {
            (None, false) => Path::HostBuffered,
            (None, true) => Path::HostDirect,
            (Some(_), false) => Path::StagedBuffered,
            (Some(_), true) => Path::StagedDirect,
        }
    }

    /// An idle stage. Waits for one if all are busy.
    fn idle_stage(&mut self) -> Result<usize> {
        loop {
            if let Some(index) = self.idle.pop() {
                return Ok(index);
            }
            if self.stages.len() < self.most
                && let Some(slot) = self.further_slot()?
            {
                self.stages.push(Stage {
                    slot,
                    block: Block {
                        spans: 0..0,
                        copies: 0..0,
                        bytes: 0,
                    },
                    direct: false,
                    left: 0,
                    uses: 0,
                    fixed: false,
                });
                return Ok(self.stages.len() - 1);
            }
            self.wait()?;
        }
    }

    /// A slot for a new stage. Waits for the first slot only, since a lane with a slot must not
    /// wait for another.
    fn further_slot(&self) -> Result<Option<Slot>> {
        let bytes = self.work.plan.slot_bytes;
        let context = self.gpu.as_ref().map(QueueLease::context);
        if self.stages.is_empty() {
            self.work.ring.slot(bytes, context).map(Some)
        } else {
            self.work.ring.further_slot(bytes, context)
        }
    }

    /// Starts the file's side of the block in a stage.
    fn start_transfers(&mut self, index: usize) {
        let stage = &mut self.stages[index];
        // Registering a fixed buffer costs about what the kernel saves in one use of it, so the
        // first use does not register one.
        if stage.direct && stage.uses == 1 && !self.plain {
            // SAFETY: the slot goes back after `io` is dropped; nothing is in flight in it.
            stage.fixed = unsafe {
                self.io
                    .attach(index, stage.slot.start(), stage.slot.bytes())
            };
            self.plain = !stage.fixed;
        }
        stage.uses += 1;
        let spans = self.work.plan.spans(&stage.block);
        stage.left = spans.len();
        for span in spans {
            let transfer = of_span(&self.work, index, stage, span);
            // SAFETY: the planner keeps spans, and the aligned pages around them, within the slot,
            // which goes back after `io` is dropped. `left` keeps everything else from the slot
            // until then.
            unsafe { self.io.add(transfer) };
        }
    }

    /// Starts the memory's side of the block in a stage. For host memory, it is done on return.
    fn start_copies(&mut self, index: usize) -> Result<()> {
        let stage = &self.stages[index];
        let start = stage.slot.start();
        let reads = self.work.operation == Operation::Read;
        let Some(gpu) = &mut self.gpu else {
            for copy in self.work.plan.copies(&stage.block) {
                self.work.counters.copy();
                for (place, memory) in copy.each_row() {
                    let (memory, bytes) = (memory as *mut u8, copy.length as usize);
                    // SAFETY: the row is within the slot, which neither the kernel nor any other code
                    // is using; the submitter vouches for its own memory.
                    unsafe {
                        let staged = start.add(place as usize);
                        if reads {
                            ptr::copy_nonoverlapping(staged, memory, bytes);
                        } else {
                            ptr::copy_nonoverlapping(memory, staged, bytes);
                        }
                    }
                }
            }
            self.copied(index);
            return Ok(());
        };
        let direction = if reads {
            Direction::ToGpu
        } else {
            Direction::FromGpu
        };
        let queue = gpu.queue()?;
        // SAFETY: the slot is not touched before the mark below has passed, and goes back after `gpu` is
        // dropped; the submitter vouches for the GPU memory.
        unsafe {
            self.work
                .queue_copies(queue, &stage.block, start, direction)?
        };
        queue.mark(index)?;
        self.copying.push_back(index);
        Ok(())
    }

    /// Whether a block of host memory needs no slot, since each piece is aligned as O_DIRECT
    /// requires.
    fn lies_aligned(&self, block: &Block) -> bool {
        let align = self.work.file.direct_memory_alignment();
        let pieces = self.work.plan.block_pieces(block);
        pieces
            .iter()
            .all(|p| p.memory as u64 % align == p.offset % align)
    }

    fn start_in_place(&mut self, block: &Block, direct: bool) {
        for piece in self.work.plan.block_pieces(block) {
            if !direct {
                self.add_in_place(piece, false);
                continue;
            }
            let [head, middle, tail] = piece.split_aligned(self.work.file.direct_alignment());
            self.add_in_place(&head, false);
            self.add_in_place(&middle, true);
            self.add_in_place(&tail, false);
        }
    }

    /// Adds a transfer between the file and the caller's memory, unless it is empty.
    fn add_in_place(&mut self, part: &Extent, direct: bool) {
        if part.length == 0 {
            return;
        }
        let transfer = FileTransfer {
            stage: None,
            buffer: part.memory as *mut u8,
            offset: part.offset,
            length: part.length,
            needed: part.length,
            direct: direct && self.work.file.direct_fd().is_some(),
            fixed: false,
        };
        // SAFETY: the submitter vouches for the memory of each extent until the request is
        // finished, which it is only after the lane, and so `io`, is dropped.
        unsafe { self.io.add(transfer) };
    }
}

/// The transfer between a span of the file and its place in a stage.
fn of_span(work: &Work<'_>, index: usize, stage: &Stage, span: &Span) -> FileTransfer {
    let direct = stage.direct && work.file.direct_fd().is_some();
    let align = if direct {
        work.file.direct_alignment()
    } else {
        1
    };
    let (head, whole) = span.aligned(align);
    let in_slot = (span.slot_offset - head) as usize;
    FileTransfer {
        stage: Some(index),
        buffer: stage.slot.start().wrapping_add(in_slot),
        offset: span.offset - head,
        length: whole,
        needed: head + span.length,
        direct,
        fixed: stage.fixed,
    }
}

impl Lane for UringLane<'_> {
    fn carry(&mut self, block: &Block) -> Result<()> {
        // While a block cannot start here, another worker may take it.
        while self.io.is_full() {
            self.io.wait()?;
            self.advance()?;
        }
        let direct = self.work.goes_direct(block);
        if self.gpu.is_none() && (!direct || self.lies_aligned(block)) {
            self.start_in_place(block, direct);
            return self.advance();
        }
        let index = self.idle_stage()?;
        let stage = &mut self.stages[index];
        stage.block = block.clone();
        stage.direct = direct;
        match self.work.operation {
            Operation::Read => self.start_transfers(index),
            Operation::Write => self.start_copies(index)?,
        }
        self.advance()
    }

    fn drain(&mut self) -> Result<()> {
        self.advance()?;
        while !self.io.is_empty() || !self.copying.is_empty() {
            self.wait()?;
        }
        match &mut self.gpu {
            Some(gpu) => gpu.queue()?.finish(),
            None => Ok(()),
        }
    }
}
