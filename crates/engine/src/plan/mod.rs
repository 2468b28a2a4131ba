//! A plan: which file ranges go to (or come from) which memory, cut into blocks. Pure data.
//!
//! A block is what one worker moves at a time and fits one slot. It holds *spans*, each one read
//! or write of the file; a span serves *pieces*, the parts of the caller's ranges that lie in it.
//! *Copies* are the same pieces as seen from the slot, joined where slot and memory both run on.

mod build;

use std::ops::Range;

pub(crate) use build::{Cut, build};

/// One range of the caller: `length` bytes at `offset` of the file, at address `memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub length: u64,
    /// An address, not a reference: it may be device memory. Valid for `length` bytes until the
    /// request is finished, as the submitter promised.
    pub memory: usize,
}

impl Extent {
    /// File offset behind the range. Only for extents that passed [`end_checked`](Self::end_checked).
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// File offset behind the range; `None` if no file or memory is that long.
    pub(crate) fn end_checked(&self) -> Option<u64> {
        self.memory
            .checked_add(usize::try_from(self.length).ok()?)?;
        self.offset
            .checked_add(self.length)
            .filter(|end| i64::try_from(*end).is_ok())
    }

    /// Where in the file two of the extents meet first, if any do.
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

/// One read or write of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub offset: u64,
    pub length: u64,
    /// Where byte `offset` of the file lies in the slot.
    pub slot_offset: u64,
    pub pieces: Range<u32>,
}

impl Span {
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// A run of bytes between a slot and the caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub slot_offset: u64,
    pub length: u64,
    pub memory: usize,
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
    copies: Vec<Copy>,
    /// Heads and tails of an O_DIRECT write that are not whole aligned pages. They are written
    /// through the page cache when all blocks are done, so that no page is written both ways at
    /// the same time.
    pub edges: Vec<Extent>,
    /// Bytes of the caller in blocks and edges.
    pub bytes: u64,
    /// Room that the largest block needs in a slot.
    pub slot_bytes: u64,
}

impl Plan {
    pub fn spans(&self, block: &Block) -> &[Span] {
        &self.spans[block.spans.start as usize..block.spans.end as usize]
    }
    pub fn pieces(&self, span: &Span) -> &[Extent] {
        &self.pieces[span.pieces.start as usize..span.pieces.end as usize]
    }
    pub fn copies(&self, block: &Block) -> &[Copy] {
        &self.copies[block.copies.start as usize..block.copies.end as usize]
    }
    /// The pieces of all spans of a block.
    pub fn block_pieces(&self, block: &Block) -> &[Extent] {
        match self.spans(block) {
            [] => &[],
            [first, .., last] => {
                &self.pieces[first.pieces.start as usize..last.pieces.end as usize]
            }
            [only] => self.pieces(only),
        }
    }
    /// All pieces and edges: what the plan moves.
    pub fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.pieces.iter().chain(&self.edges)
    }
    /// First file byte and length of the stretch of file in which a block's spans lie.
    pub fn stretch(&self, block: &Block) -> (u64, u64) {
        let spans = self.spans(block);
        let start = spans.iter().map(|s| s.offset).min().unwrap_or(0);
        let end = spans.iter().map(Span::end).max().unwrap_or(0);
        (start, end - start)
    }
}
