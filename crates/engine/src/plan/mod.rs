//! A plan: which file ranges go to or come from which memory, cut into blocks. Pure data.
//!
//! A *block* is what one worker moves at a time; it fits one slot. It consists of *spans*, each of
//! which is one read or write of the file. A span serves *pieces*: the parts of the caller's ranges
//! that lie in it. *Copies* are the same pieces seen from the slot, joined where they are adjacent in
//! both slot and memory, or lie at regular distances in both.

mod build;
mod rows;

use std::ops::Range;

use crate::error::{Error, Result};

pub(crate) use build::{Cut, build, build_rows};
pub(crate) use rows::{LEAST_RANGES, Rows};

/// One range of the caller: `length` bytes at `offset` of the file, at address `memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Extent {
    /// The first byte in the file.
    pub offset: u64,
    /// Bytes of the range; 0 moves nothing.
    pub length: u64,
    /// An address rather than a reference, since it may be GPU memory. The submitter promises that
    /// `length` bytes stay valid there until the request is finished.
    pub memory: usize,
}

impl Extent {
    /// A range of the file from `offset` on, as long as `memory`, which is on the host.
    pub fn new(offset: u64, memory: &mut [u8]) -> Extent {
        Extent {
            offset,
            length: memory.len() as u64,
            memory: memory.as_mut_ptr() as usize,
        }
    }

    /// The file offset behind the range. Only for extents that passed
    /// [`check`](Self::check).
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// The file offset behind the range; `None` if no file or memory is that long.
    pub(crate) fn end_checked(&self) -> Option<u64> {
        self.memory
            .checked_add(usize::try_from(self.length).ok()?)?;
        self.offset
            .checked_add(self.length)
            .filter(|end| i64::try_from(*end).is_ok())
    }

    /// Checks that a file and memory can have the range.
    pub(crate) fn check(&self) -> Result<()> {
        let Extent { offset, length, .. } = self;
        let is_valid = self.end_checked().is_some();
        is_valid.then_some(()).ok_or_else(|| {
            Error::invalid(format!(
                "a range of {length} bytes at file offset {offset} is larger than any file or memory"
            ))
        })
    }

    /// Splits the range at file offsets that are multiples of `align` into an unaligned head, the
    /// aligned middle and an unaligned tail, each of which may be empty.
    pub(crate) fn split_aligned(&self, align: u64) -> [Extent; 3] {
        let start = self.offset.next_multiple_of(align).min(self.end());
        let end = (self.end() / align * align).max(start);
        let part = |from: u64, to: u64| Extent {
            offset: from,
            length: to - from,
            memory: self.memory + (from - self.offset) as usize,
        };
        [
            part(self.offset, start),
            part(start, end),
            part(end, self.end()),
        ]
    }

    /// The first file offset that two of the extents share, if any do.
    pub fn overlap(extents: &[Extent]) -> Option<u64> {
        let meets =
            |pair: &[Extent]| pair[0].offset.saturating_add(pair[0].length) > pair[1].offset;
        if !extents.windows(2).any(meets) {
            return None;
        }
        let mut sorted: Vec<Extent> = extents.iter().filter(|e| e.length > 0).copied().collect();
        sorted.sort_unstable_by_key(|e| e.offset);
        let pair = sorted.windows(2).find(|pair| meets(pair))?;
        Some(pair[1].offset)
    }
}

/// One read or write of the file; or several reads at regular distances, which are adjacent in the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub offset: u64,
    /// Bytes of each read.
    pub length: u64,
    /// The number of reads. Only a plan of rows has spans of several.
    pub reads: u64,
    /// Bytes from the start of one read to that of the next in the file.
    pub step: u64,
    /// The place of the span's first byte in the slot.
    pub slot_offset: u64,
    pub pieces: Range<u32>,
}

impl Span {
    pub(crate) fn end(&self) -> u64 {
        self.offset + (self.reads - 1) * self.step + self.length
    }

    /// The ranges of the file, with their places in a slot that begins at `start`.
    pub(crate) fn in_slot(&self, start: *mut u8) -> impl Iterator<Item = Extent> + use<> {
        let first = start as usize + self.slot_offset as usize;
        let (offset, length, step) = (self.offset, self.length, self.step);
        (0..self.reads).map(move |read| Extent {
            offset: offset + read * step,
            length,
            memory: first + (read * length) as usize,
        })
    }

    /// The bytes before the span in its first aligned block, and those of all its aligned blocks.
    pub(crate) fn aligned(&self, align: u64) -> (u64, u64) {
        let head = self.offset % align;
        (head, (head + self.length).next_multiple_of(align))
    }
}

/// Rows of bytes between a slot and the caller's memory; one row of any length, or several at regular
/// distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotCopy {
    pub slot_offset: u64,
    /// Bytes of a row.
    pub length: u64,
    pub memory: usize,
    pub rows: u64,
    /// Bytes from the start of one row to that of the next, in the slot and in memory; at least the
    /// length. Only for several rows.
    pub slot_pitch: u64,
    pub pitch: u64,
}

impl SlotCopy {
    pub(crate) fn one(slot_offset: u64, length: u64, memory: usize) -> SlotCopy {
        SlotCopy {
            slot_offset,
            length,
            memory,
            rows: 1,
            slot_pitch: 0,
            pitch: 0,
        }
    }

    /// The place in the slot and the address of each row.
    pub(crate) fn each_row(&self) -> impl Iterator<Item = (u64, usize)> {
        let copy = *self;
        (0..copy.rows).map(move |row| {
            let place = copy.slot_offset + row * copy.slot_pitch;
            (place, copy.memory + (row * copy.pitch) as usize)
        })
    }

    /// Adds a row behind the others. Returns false, and changes nothing, unless all then are one row, or
    /// lie at regular distances.
    fn append(&mut self, next: &SlotCopy) -> bool {
        if next.rows > 1 {
            return false;
        }
        let Some(slot_pitch) = next.slot_offset.checked_sub(self.slot_offset) else {
            return false;
        };
        let Some(pitch) = next.memory.checked_sub(self.memory) else {
            return false;
        };
        let pitch = pitch as u64;
        if self.rows == 1 {
            if (slot_pitch, pitch) == (self.length, self.length) {
                self.length += next.length;
                return true;
            }
            if next.length != self.length || slot_pitch < self.length || pitch < self.length {
                return false;
            }
            (self.slot_pitch, self.pitch) = (slot_pitch, pitch);
        } else if next.length != self.length
            || slot_pitch != self.rows * self.slot_pitch
            || pitch != self.rows * self.pitch
        {
            return false;
        }
        self.rows += 1;
        true
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub spans: Range<u32>,
    pub copies: Range<u32>,
    /// Bytes of the caller in this block.
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub blocks: Vec<Block>,
    spans: Vec<Span>,
    pieces: Vec<Extent>,
    copies: Vec<SlotCopy>,
    /// Reads or writes of the file.
    pub calls: u64,
    /// The unaligned heads and tails of an O_DIRECT write. They are written through the page cache
    /// when all blocks are done, so that no page is written both ways at the same time.
    pub unaligned: Vec<Extent>,
    /// Bytes of a slot that the largest block needs.
    pub slot_bytes: u64,
}

impl Plan {
    pub(crate) fn spans(&self, block: &Block) -> &[Span] {
        &self.spans[block.spans.start as usize..block.spans.end as usize]
    }
    pub(crate) fn pieces(&self, span: &Span) -> &[Extent] {
        &self.pieces[span.pieces.start as usize..span.pieces.end as usize]
    }
    pub(crate) fn copies(&self, block: &Block) -> &[SlotCopy] {
        &self.copies[block.copies.start as usize..block.copies.end as usize]
    }
    /// The pieces of all spans of a block.
    pub(crate) fn block_pieces(&self, block: &Block) -> &[Extent] {
        match self.spans(block) {
            [] => &[],
            [first, .., last] => {
                &self.pieces[first.pieces.start as usize..last.pieces.end as usize]
            }
            [only] => self.pieces(only),
        }
    }
    /// All that the plan moves: pieces, and unaligned heads and tails.
    pub(crate) fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.pieces.iter().chain(&self.unaligned)
    }
    pub(crate) fn is_in_file_order(&self) -> bool {
        let starts = self.blocks.iter().map(|block| self.stretch(block).0);
        starts.is_sorted()
    }
    /// Whether there are so many calls that each worker should have a descriptor of its own.
    pub(crate) fn has_many_calls(&self) -> bool {
        self.calls >= 4096
    }
    /// Offset and length of the stretch of file that a block's spans lie in.
    pub(crate) fn stretch(&self, block: &Block) -> (u64, u64) {
        let spans = self.spans(block);
        let start = spans.iter().map(|s| s.offset).min().unwrap_or(0);
        let end = spans.iter().map(Span::end).max().unwrap_or(0);
        (start, end - start)
    }
}
