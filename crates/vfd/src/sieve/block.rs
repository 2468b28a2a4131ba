//! A block: a copy of 64 KiB of a file. It tracks which bytes are known and which are newer than
//! the file's (dirty).

use std::ops::Range;
use std::ptr;

use penstock_engine::Extent;

use super::SelectionId;

/// Size of a block. Blocks begin at multiples of it, so that no byte is in two blocks.
pub(super) const BLOCK: usize = 64 << 10;

/// Largest gap between dirty bytes that a write may fill with the file's bytes. Both sides must be
/// of one selection.
const GAP: usize = 4 << 10;

pub(super) struct Block {
    /// Offset of the first byte in the file; `None` if the block is not in use.
    pub start: Option<u64>,
    bytes: Box<[u8]>,
    /// Range of bytes that equal the file's or are newer.
    known: Range<usize>,
    /// Range from the first to the last dirty byte.
    dirty: Range<usize>,
    /// Selection whose bytes were last copied to or from this block.
    selection: Option<SelectionId>,
    /// Time at which the oldest known bytes were read from the file.
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
            selection: None,
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

    /// Returns the file offset and the contents of the dirty range.
    pub(super) fn to_write(&self) -> (u64, &[u8]) {
        let start = self.start.unwrap_or(0);
        (
            start + self.dirty.start as u64,
            &self.bytes[self.dirty.clone()],
        )
    }

    /// Records that the file has the dirty bytes.
    pub(super) fn is_written(&mut self) {
        self.dirty = 0..0;
    }

    /// Forgets all bytes that are not dirty.
    pub(super) fn forget_clean(&mut self) {
        self.known = self.dirty.clone();
    }

    /// Assigns the block to another part of the file. No byte is known.
    pub(super) fn assign(&mut self, start: Option<u64>) {
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

    /// Returns whether the block can take bytes in this range without a fill or a write.
    #[inline]
    pub(super) fn takes(&self, range: &Range<usize>, selection: Option<SelectionId>) -> bool {
        self.joins_known(range) && self.joins_dirty(range, selection)
    }

    /// Returns whether all bytes between the range and the known bytes are known.
    #[inline]
    pub(super) fn joins_known(&self, range: &Range<usize>) -> bool {
        self.known.is_empty() || distance(&self.known, range) == 0
    }

    /// Returns whether the bytes between the range and the dirty bytes may be written, too. The gap
    /// must be empty, or small with both sides of one selection. Between two selections, another
    /// process may have changed the file.
    #[inline]
    pub(super) fn joins_dirty(&self, range: &Range<usize>, selection: Option<SelectionId>) -> bool {
        self.dirty.is_empty() || distance(&self.dirty, range) <= self.gap(selection)
    }

    /// Returns the largest gap that may be written between dirty bytes and bytes of a selection.
    #[inline]
    fn gap(&self, selection: Option<SelectionId>) -> usize {
        if self.selection == selection {
            gap_within(selection)
        } else {
            0
        }
    }

    /// # Safety
    /// `from` is valid for the bytes of the range, for which [`takes`](Self::takes) is true.
    #[inline]
    pub(super) unsafe fn put(
        &mut self,
        range: Range<usize>,
        from: *const u8,
        selection: Option<SelectionId>,
    ) {
        let to = &mut self.bytes[range.clone()];
        // SAFETY: upheld by the caller; no caller has the address of this block.
        unsafe { copy(from, to.as_mut_ptr(), to.len()) };
        self.known = hull(&self.known, &range);
        self.dirty = hull(&self.dirty, &range);
        self.selection = selection;
    }

    /// Copies ranges of the file from the block, up to the first unknown one. Returns their number
    /// and their bytes.
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

    /// Puts bytes into a dirty block, up to the first range that requires a fill or a write.
    /// Returns the number of ranges and their bytes. The block may be completely dirty afterwards.
    ///
    /// # Safety
    /// The memory of each extent is valid.
    pub(super) unsafe fn put_all(
        &mut self,
        extents: &[Extent],
        selection: Option<SelectionId>,
    ) -> (usize, u64) {
        let Some(start) = self.start.filter(|_| self.is_dirty()) else {
            return (0, 0);
        };
        let (mut moved, mut bytes) = (0, 0);
        // Local copies: the compiler would reload fields after each store to the bytes.
        let (mut known, mut dirty) = (self.known.clone(), self.dirty.clone());
        let to = self.bytes.as_mut_ptr();
        let mut gap = self.gap(selection);
        for extent in extents {
            let Some(range) = range_from(start, extent) else {
                break;
            };
            let is_known = known.start <= range.start && range.end <= known.end;
            let goes_on = dirty.start <= range.start && range.start <= dirty.end + gap;
            if is_known && goes_on {
                dirty.end = dirty.end.max(range.end);
            } else if distance(&known, &range) == 0 && distance(&dirty, &range) <= gap {
                known = hull(&known, &range);
                dirty = hull(&dirty, &range);
            } else {
                break;
            }
            // SAFETY: the range lies in the block; the caller guarantees the memory.
            unsafe { copy(extent.memory as *const u8, to.add(range.start), range.len()) };
            // From here on, some dirty bytes are of this selection.
            gap = gap_within(selection);
            moved += 1;
            bytes += extent.length;
        }
        if moved > 0 {
            (self.known, self.dirty, self.selection) = (known, dirty, selection);
        }
        (moved, bytes)
    }

    /// Makes a range known, with all bytes from the known ones to the end of the block on its side,
    /// because the next accesses are likely there. `read` fills its slice from the given file
    /// offset.
    pub(super) fn fill<E>(
        &mut self,
        range: &Range<usize>,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(start) = self.start else {
            return Ok(());
        };
        if self.known.is_empty() {
            self.known = 0..0;
        }
        if range.end > self.known.end {
            let from = self.known.end;
            read(start + from as u64, &mut self.bytes[from..])?;
            self.known.end = BLOCK;
        }
        if range.start < self.known.start {
            read(start, &mut self.bytes[..self.known.start])?;
            self.known.start = 0;
        }
        Ok(())
    }

    /// Records that bytes of a selection were copied.
    #[inline]
    pub(super) fn is_used(&mut self, selection: Option<SelectionId>) {
        self.selection = selection;
    }

    /// Returns whether a selection that continues at `start` has probably finished with this block:
    /// it used the block last, and the blocks are neighbours.
    pub(super) fn is_left_by(&self, selection: Option<SelectionId>, start: u64) -> bool {
        let is_next = |own: u64| own.abs_diff(start) == BLOCK as u64;
        selection.is_some() && self.selection == selection && self.start.is_some_and(is_next)
    }
}

/// Returns the position of a file range in a block that begins at `start`; `None` if it is not
/// completely inside.
#[inline]
fn range_from(start: u64, extent: &Extent) -> Option<Range<usize>> {
    let at = extent.offset.checked_sub(start)? as usize;
    let end = at.checked_add(extent.length as usize)?;
    (end <= BLOCK).then_some(at..end)
}

/// Copies like `copy_nonoverlapping`, with single instructions for the sizes of most elements.
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

/// Returns the largest gap that may be written between bytes of one selection; 0 without a
/// selection.
#[inline]
fn gap_within(selection: Option<SelectionId>) -> usize {
    selection.map_or(0, |_| GAP)
}

#[inline]
fn hull(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    if one.is_empty() {
        other.clone()
    } else {
        one.start.min(other.start)..one.end.max(other.end)
    }
}

/// Returns the number of bytes between two ranges; 0 if they meet.
#[inline]
fn distance(one: &Range<usize>, other: &Range<usize>) -> usize {
    let (first, second) = if one.start <= other.start {
        (one, other)
    } else {
        (other, one)
    };
    second.start.saturating_sub(first.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(block: &mut Block, range: Range<usize>, selection: Option<SelectionId>) {
        assert!(block.takes(&range, selection));
        let from = vec![7; range.len()];
        // SAFETY: the block takes the range, which is as long as the bytes.
        unsafe { block.put(range, from.as_ptr(), selection) };
    }

    fn fill(block: &mut Block) {
        let filled: Result<(), ()> = block.fill(&(0..BLOCK), |_, bytes| {
            bytes.fill(1);
            Ok(())
        });
        filled.unwrap();
    }

    fn block() -> Block {
        let mut block = Block::new();
        block.assign(Some(3 * BLOCK as u64));
        block
    }

    fn dirty(block: &Block) -> Range<u64> {
        let (offset, bytes) = block.to_write();
        offset - 3 * BLOCK as u64..offset + bytes.len() as u64 - 3 * BLOCK as u64
    }

    #[test]
    fn adjacent_bytes_are_written_together_and_nothing_else() {
        let mut block = block();
        put(&mut block, 100..108, None);
        put(&mut block, 108..116, Some(SelectionId::new()));
        put(&mut block, 92..100, Some(SelectionId::new()));
        assert_eq!(dirty(&block), 92..116);
        assert!(block.to_write().1.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn bytes_beyond_a_gap_require_the_gap_to_be_known() {
        let (mut block, selection) = (block(), Some(SelectionId::new()));
        put(&mut block, 100..108, selection);
        assert!(!block.takes(&(120..128), selection));
        fill(&mut block);
        put(&mut block, 120..128, selection);
        assert_eq!(dirty(&block), 100..128);
        let (_, bytes) = block.to_write();
        assert_eq!((bytes[7], bytes[8], bytes[19], bytes[20]), (7, 1, 1, 7));
    }

    #[test]
    fn bytes_between_two_selections_are_not_written() {
        for selection in [None, Some(SelectionId::new())] {
            let mut block = block();
            put(&mut block, 100..108, selection);
            fill(&mut block);
            assert!(!block.takes(&(109..117), None) && !block.takes(&(90..99), None));
            let another = Some(SelectionId::new());
            assert!(!block.takes(&(109..117), another) && !block.takes(&(90..99), another));
            put(&mut block, 108..109, another);
            assert!(!block.takes(&(112..117), selection) && block.takes(&(112..117), another));
        }
    }

    #[test]
    fn large_gaps_are_not_written_again() {
        let (mut block, selection) = (block(), Some(SelectionId::new()));
        put(&mut block, 0..8, selection);
        fill(&mut block);
        assert!(block.takes(&(8 + GAP..16 + GAP), selection));
        assert!(!block.takes(&(9 + GAP..17 + GAP), selection));
        block.is_written();
        assert!(block.takes(&(9 + GAP..17 + GAP), selection));
    }

    #[test]
    fn putting_many_ranges_equals_putting_each() {
        let selection = Some(SelectionId::new());
        let from: Vec<u8> = (0..200).collect();
        let extent = |(index, offset): (usize, &u64)| Extent {
            offset: 3 * BLOCK as u64 + offset,
            length: 8,
            memory: from.as_ptr() as usize + 8 * index,
        };
        // The last three: beyond a gap that is too large, in another block, and half in another.
        for last in [124 + 8 + GAP as u64 + 1, BLOCK as u64, BLOCK as u64 - 4] {
            let offsets = [124, 100, 112, 60, 62, last];
            let extents: Vec<_> = offsets.iter().enumerate().map(extent).collect();
            let mut block = block();
            put(&mut block, 104..108, selection);
            fill(&mut block);
            // SAFETY: `from` has as many bytes.
            assert_eq!(unsafe { block.put_all(&extents, selection) }, (5, 40));
            assert_eq!(dirty(&block), 60..132);
            let (_, bytes) = block.to_write();
            let at = |offset: usize| bytes[offset - 60];
            assert_eq!((at(124), at(100), at(107), at(108)), (0, 8, 15, 1));
            assert_eq!(
                (at(60), at(61), at(62), at(69), at(70)),
                (24, 25, 32, 39, 1)
            );
        }
    }

    #[test]
    fn a_fill_keeps_dirty_bytes() {
        let mut block = block();
        put(&mut block, 100..108, None);
        let mut asked = Vec::new();
        let filled: Result<(), ()> = block.fill(&(200..208), |offset, bytes| {
            asked.push((offset - 3 * BLOCK as u64, bytes.len()));
            Ok(())
        });
        filled.unwrap();
        assert_eq!(asked, [(108, BLOCK - 108)]);
        assert!(block.knows(&(100..BLOCK)) && !block.knows(&(99..100)));
        fill(&mut block);
        assert!(block.knows(&(0..BLOCK)) && dirty(&block) == (100..108));
        assert_eq!(block.to_write().1, [7; 8]);
    }
}
