//! `host`: positional reads and writes between the file and host memory.

use super::near::NearRanges;
use super::{Lane, Route, Work};
use crate::error::Result;
use crate::file::position::Operation;
use crate::file::reader::Reader;
use crate::options::RouteName;
use crate::plan::{Block, Extent};
use crate::report::Path;
use crate::staging::Slot;

pub(crate) struct Host;

impl Route for Host {
    fn name(&self) -> RouteName {
        RouteName::Host
    }
    fn lane<'a>(&'a self, mut work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        let reader = work.take_reader();
        Ok(Box::new(HostLane {
            work,
            _reader: reader,
            slot: None,
            near: NearRanges::default(),
        }))
    }
}

struct HostLane<'a> {
    work: Work<'a>,
    /// Of the descriptor in `work`.
    _reader: Option<Reader<'a>>,
    /// The slot for O_DIRECT where file and memory differ in alignment.
    slot: Option<Slot>,
    near: NearRanges,
}

impl Lane for HostLane<'_> {
    fn carry(&mut self, block: &Block) -> Result<()> {
        if self.work.goes_direct(block) {
            return self.carry_direct(block);
        }
        let pieces = self.work.plan.block_pieces(block);
        // SAFETY: the submitter vouches for the memory of each extent until the request is finished,
        // and pieces do not overlap.
        unsafe { self.near.transfer(&self.work, pieces)? };
        self.work.counters.moved(Path::HostBuffered, block.bytes);
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        Ok(())
    }
}

impl HostLane<'_> {
    fn move_piece(&self, piece: &Extent) -> Result<()> {
        let memory = piece.memory as *mut u8;
        // SAFETY: the submitter vouches for the memory of each extent until the request is
        // finished, and pieces do not overlap.
        unsafe { self.work.move_buffered(memory, piece.offset, piece.length) }
    }

    fn carry_direct(&mut self, block: &Block) -> Result<()> {
        for piece in self.work.plan.block_pieces(block) {
            let shift = piece.memory as u64 % self.work.file.direct_memory_alignment();
            if shift == piece.offset % self.work.file.direct_memory_alignment() {
                self.move_in_place(piece)?;
            } else {
                self.move_by_slot(piece)?;
            }
        }
        Ok(())
    }

    /// Moves a piece whose memory is aligned as its file range: whole pages by O_DIRECT, the
    /// unaligned head and tail through the page cache. Pieces of a write have no such ends, because
    /// the plan keeps them apart.
    fn move_in_place(&self, piece: &Extent) -> Result<()> {
        let [head, middle, tail] = piece.split_aligned(self.work.file.direct_alignment());
        for end in [head, tail].iter().filter(|end| end.length > 0) {
            self.move_piece(end)?;
        }
        let mut direct = 0;
        if middle.length > 0 {
            let (memory, length) = (middle.memory as *mut u8, middle.length);
            // SAFETY: an aligned part of a piece, for whose memory the submitter vouches.
            let is_direct = unsafe {
                self.work
                    .move_direct(memory, middle.offset, length, length)?
            };
            direct = if is_direct { length } else { 0 };
        }
        self.count(direct, piece.length - direct);
        Ok(())
    }

    fn move_by_slot(&mut self, piece: &Extent) -> Result<()> {
        let align = self.work.file.direct_alignment();
        let head = piece.offset % align;
        let needed = head + piece.length;
        let whole = needed.next_multiple_of(align);
        if self
            .slot
            .as_ref()
            .is_none_or(|s| (s.bytes() as u64) < whole)
        {
            // The old slot goes back first: a worker that waits for a slot must hold none.
            self.slot = None;
            self.slot = Some(self.work.ring.slot(whole, None)?);
        }
        let Some(slot) = &self.slot else {
            return Ok(());
        };
        let memory = piece.memory as *mut u8;
        // SAFETY: the slot has room for `whole`; the piece is the submitter's, and the two do not
        // overlap.
        let direct = unsafe {
            let in_slot = slot.start().add(head as usize);
            if self.work.operation == Operation::Write {
                std::ptr::copy_nonoverlapping(memory, in_slot, piece.length as usize);
            }
            let direct = self
                .work
                .move_direct(slot.start(), piece.offset - head, whole, needed)?;
            if self.work.operation == Operation::Read {
                std::ptr::copy_nonoverlapping(in_slot, memory, piece.length as usize);
            }
            direct
        };
        self.work.counters.copy();
        let bytes = if direct { piece.length } else { 0 };
        self.count(bytes, piece.length - bytes);
        Ok(())
    }

    fn count(&self, direct: u64, buffered: u64) {
        self.work.counters.moved(Path::HostDirect, direct);
        self.work.counters.moved(Path::HostBuffered, buffered);
    }
}
