//! A block: a copy of 64 KiB of a file, of which some bytes are known, and some are newer than the
//! file's.

use std::ops::Range;
use std::ptr;

use penstock_engine::Extent;

use super::Selection;

/// Size of a block. Its place in the file is a multiple of it, so that no byte is in two blocks.
pub(super) const BLOCK: usize = 64 << 10;

/// Gaps up to this size between bytes to be written are written again with what the file has there, if
/// both sides are of one selection.
pub(crate) const GAP: usize = 4 << 10;

pub(super) struct Block {
    /// Offset of the first byte in the file; `None` if the block is not in use.
    pub start: Option<u64>,
    bytes: Box<[u8]>,
    /// The bytes that are as in the file, or newer.
    known: Range<usize>,
    /// Those among them that are still to be written, or lie between such bytes.
    dirty: Range<usize>,
    /// The selection that the bytes are part of which were put here last.
    by: Option<Selection>,
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
            by: None,
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
        (
            start + self.dirty.start as u64,
            &self.bytes[self.dirty.clone()],
        )
    }

    /// Records that the file has the bytes.
    pub(super) fn is_written(&mut self) {
        self.dirty = 0..0;
    }

    /// Knows only what is to be written from now on.
    pub(super) fn forget_clean(&mut self) {
        self.known = self.dirty.clone();
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
        unsafe { copy(from.as_ptr(), to, from.len()) };
    }

    /// Whether bytes can be put there as the block is.
    #[inline]
    pub(super) fn takes(&self, range: &Range<usize>, by: Option<Selection>) -> bool {
        self.joins_known(range) && self.joins_dirty(range, by)
    }

    /// Whether what lies between them and the known bytes is known.
    #[inline]
    pub(super) fn joins_known(&self, range: &Range<usize>) -> bool {
        self.known.is_empty() || distance(&self.known, range) == 0
    }

    /// Whether what lies between them and the bytes to be written may be written with them: nothing, or
    /// a little of the storage of which `by` selects both sides. Between two selections may be
    /// anybody's bytes, which somebody else may have changed.
    #[inline]
    pub(super) fn joins_dirty(&self, range: &Range<usize>, by: Option<Selection>) -> bool {
        let gap = match by.is_some() && self.by == by {
            true => GAP,
            false => 0,
        };
        self.dirty.is_empty() || distance(&self.dirty, range) <= gap
    }

    /// # Safety
    /// `from` is valid for the bytes of the range, for which [`takes`](Self::takes) is true.
    #[inline]
    pub(super) unsafe fn put(
        &mut self,
        range: Range<usize>,
        from: *const u8,
        by: Option<Selection>,
    ) {
        let to = &mut self.bytes[range.clone()];
        // SAFETY: upheld by the caller; no caller has the address of this block.
        unsafe { copy(from, to.as_mut_ptr(), to.len()) };
        self.known = hull(&self.known, &range);
        self.dirty = hull(&self.dirty, &range);
        self.by = by;
    }

    /// Copies ranges of the file from the block, up to the first that it does not know. Returns their
    /// number and their bytes.
    ///
    /// # Safety
    /// The memory of each extent is valid for writing.
    pub(super) unsafe fn copy_all(&self, extents: &[Extent]) -> (usize, u64) {
        let Some(start) = self.start else {
            return (0, 0);
        };
        let knows = |extent: &Extent| {
            let range = range_from(start, extent)?;
            self.knows(&range).then_some(range)
        };
        let (mut moved, mut bytes) = (0, 0);
        for extent in extents {
            let Some(range) = knows(extent) else {
                break;
            };
            // SAFETY: the bytes are known; the caller guarantees the memory.
            unsafe { self.copy_to(range, extent.memory as *mut u8) };
            moved += 1;
            bytes += extent.length;
        }
        (moved, bytes)
    }

    /// Puts bytes into the block, up to the first range for which it must be filled or written.
    /// Returns the number of ranges and their bytes. The block may be all dirty then.
    ///
    /// # Safety
    /// The memory of each extent is valid.
    pub(super) unsafe fn put_all(
        &mut self,
        extents: &[Extent],
        by: Option<Selection>,
    ) -> (usize, u64) {
        let Some(start) = self.start else {
            return (0, 0);
        };
        let (mut moved, mut bytes) = (0, 0);
        for extent in extents {
            let Some(range) = range_from(start, extent) else {
                break;
            };
            if !self.is_dirty() || self.is_all_dirty() || !self.takes(&range, by) {
                break;
            }
            // SAFETY: the block takes the range; the caller guarantees the memory.
            unsafe { self.put(range, extent.memory as *const u8, by) };
            moved += 1;
            bytes += extent.length;
        }
        (moved, bytes)
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

/// Returns the place of a range of the file in a block that begins at `start`, if it lies there.
#[inline]
fn range_from(start: u64, extent: &Extent) -> Option<Range<usize>> {
    let at = extent.offset.checked_sub(start)? as usize;
    let end = at.checked_add(extent.length as usize)?;
    (end <= BLOCK).then_some(at..end)
}

/// Copies like `copy_nonoverlapping`, at once for the size of most elements.
///
/// # Safety
/// As for `copy_nonoverlapping`.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: upheld by the caller; neither address need be aligned.
    unsafe {
        match length {
            4 => to.cast::<[u8; 4]>().write(from.cast::<[u8; 4]>().read()),
            8 => to.cast::<[u8; 8]>().write(from.cast::<[u8; 8]>().read()),
            _ => ptr::copy_nonoverlapping(from, to, length),
        }
    }
}

#[inline]
fn hull(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    match one.is_empty() {
        true => other.clone(),
        false => one.start.min(other.start)..one.end.max(other.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(block: &mut Block, range: Range<usize>) {
        assert!(block.takes(&range));
        let from = vec![7; range.len()];
        // SAFETY: the block takes the range, which is as long as the bytes.
        unsafe { block.put(range, from.as_ptr()) };
    }

    fn block() -> Block {
        let mut block = Block::new();
        block.stand_for(Some(3 * BLOCK as u64));
        block
    }

    fn dirty(block: &Block) -> Range<u64> {
        let (offset, bytes) = block.to_write();
        offset - 3 * BLOCK as u64..offset + bytes.len() as u64 - 3 * BLOCK as u64
    }

    #[test]
    fn adjacent_bytes_are_written_together_and_nothing_else() {
        let mut block = block();
        put(&mut block, 100..108);
        put(&mut block, 108..116);
        put(&mut block, 92..100);
        assert_eq!(dirty(&block), 92..116);
        assert!(block.to_write().1.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn bytes_beyond_a_gap_need_to_know_what_is_in_it() {
        let mut block = block();
        put(&mut block, 100..108);
        assert!(!block.takes(&(120..128)));
        assert!(block.is_worth_filling(&(120..128)));
        let filled: Result<(), ()> = block.fill(|_, bytes| {
            bytes.fill(1);
            Ok(())
        });
        filled.unwrap();
        put(&mut block, 120..128);
        assert_eq!(dirty(&block), 100..128);
        let (_, bytes) = block.to_write();
        assert_eq!((bytes[7], bytes[8], bytes[19], bytes[20]), (7, 1, 1, 7));
    }

    #[test]
    fn large_gaps_are_not_written_again() {
        let mut block = block();
        put(&mut block, 0..8);
        let filled: Result<(), ()> = block.fill(|_, _| Ok(()));
        filled.unwrap();
        assert!(block.takes(&(8 + GAP..16 + GAP)));
        assert!(!block.takes(&(9 + GAP..17 + GAP)));
        block.is_written();
        assert!(block.takes(&(9 + GAP..17 + GAP)));
    }

    #[test]
    fn a_fill_keeps_what_is_newer_than_the_file() {
        let mut block = block();
        put(&mut block, 100..108);
        let mut asked = Vec::new();
        let filled: Result<(), ()> = block.fill(|offset, bytes| {
            asked.push((offset - 3 * BLOCK as u64, bytes.len()));
            Ok(())
        });
        filled.unwrap();
        assert_eq!(asked, [(0, 100), (108, BLOCK - 108)]);
        assert!(block.knows(&(0..BLOCK)) && dirty(&block) == (100..108));
    }
}

/// Returns how many bytes lie between two ranges; 0 if they meet.
#[inline]
fn distance(one: &Range<usize>, other: &Range<usize>) -> usize {
    let (first, second) = match one.start <= other.start {
        true => (one, other),
        false => (other, one),
    };
    second.start.saturating_sub(first.end)
}
