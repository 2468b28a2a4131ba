//! A block: a copy of 64 KiB of a file, of which some bytes are known, and some are newer than the
//! file's.

use std::ops::Range;

/// Size of a block. Its place in the file is a multiple of it, so that no byte is in two blocks.
pub(super) const BLOCK: usize = 64 << 10;

/// Gaps up to this size between bytes to be written are written again with what the file has there.
pub(super) const GAP: usize = 4 << 10;

pub(super) struct Block {
    /// Offset of the first byte in the file; `None` if the block is not in use.
    pub start: Option<u64>,
    bytes: Box<[u8]>,
    /// The bytes that are as in the file, or newer.
    known: Range<usize>,
    /// Those among them that are still to be written, or lie between such bytes.
    dirty: Range<usize>,
    /// When the oldest of the known bytes was the file's.
    pub since: super::Moment,
    /// Number of the last use.
    pub used: u64,
}

impl Block {
    pub(super) fn new() -> Block {
        Block {
            start: None,
            bytes: vec![0; BLOCK].into_boxed_slice(),
            known: 0..0,
            dirty: 0..0,
            since: super::Moment::default(),
            used: 0,
        }
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    pub(super) fn is_all_dirty(&self) -> bool {
        self.dirty == (0..BLOCK)
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.known.is_empty()
    }

    #[inline]
    pub(super) fn knows(&self, range: &Range<usize>) -> bool {
        self.known.start <= range.start && range.end <= self.known.end
    }

    /// Returns the file range of the bytes to be written, and their address.
    pub(super) fn to_write(&self) -> (u64, &[u8]) {
        let start = self.start.unwrap_or(0);
        (start + self.dirty.start as u64, &self.bytes[self.dirty.clone()])
    }

    /// Records that the file has the bytes.
    pub(super) fn is_written(&mut self) {
        self.dirty = 0..0;
    }

    /// Begins to stand for another part of the file. Nothing is known yet.
    pub(super) fn stand_for(&mut self, start: Option<u64>) {
        debug_assert!(!self.is_dirty());
        self.start = start;
        self.known = 0..0;
        self.dirty = 0..0;
    }

    /// # Safety
    /// The bytes are known, and `to` is valid for as many.
    #[inline]
    pub(super) unsafe fn copy_to(&self, range: Range<usize>, to: *mut u8) {
        let from = &self.bytes[range];
        // SAFETY: upheld by the caller; no caller has the address of this block.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    /// Whether bytes can be put there: what lies between them and the bytes still to be written is
    /// known, and little enough to be written with them.
    #[inline]
    pub(super) fn takes(&self, range: &Range<usize>) -> bool {
        let joins = range.start <= self.known.end && self.known.start <= range.end;
        let is_near = self.dirty.is_empty()
            || (range.start <= self.dirty.end + GAP && self.dirty.start <= range.end + GAP);
        self.known.is_empty() || (joins && is_near)
    }

    /// Whether bytes could be put there if the whole block were known.
    pub(super) fn is_worth_filling(&self, range: &Range<usize>) -> bool {
        range.start <= self.known.end + GAP
            && self.known.start <= range.end + GAP
            && (self.dirty.is_empty()
                || (range.start <= self.dirty.end + GAP && self.dirty.start <= range.end + GAP))
    }

    /// # Safety
    /// `from` is valid for the bytes of the range, for which [`takes`](Self::takes) is true.
    #[inline]
    pub(super) unsafe fn put(&mut self, range: Range<usize>, from: *const u8) {
        let to = &mut self.bytes[range.clone()];
        // SAFETY: upheld by the caller; no caller has the address of this block.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        self.known = hull(&self.known, &range);
        self.dirty = hull(&self.dirty, &range);
    }

    /// Reads what is not known by `read`, which fills its slice from the file offset given.
    pub(super) fn fill<E>(
        &mut self,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(start) = self.start else {
            return Ok(());
        };
        let known = match self.known.is_empty() {
            true => 0..0,
            false => self.known.clone(),
        };
        if known.start > 0 {
            read(start, &mut self.bytes[..known.start])?;
        }
        if known.end < BLOCK {
            read(start + known.end as u64, &mut self.bytes[known.end..])?;
        }
        self.known = 0..BLOCK;
        Ok(())
    }
}

#[inline]
fn hull(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    match one.is_empty() {
        true => other.clone(),
        false => one.start.min(other.start)..one.end.max(other.end),
    }
}
