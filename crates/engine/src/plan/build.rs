//! Cuts the caller's ranges into blocks.
//!
//! The planner sorts the ranges by file offset, or keeps them in the order of memory if they are
//! packed there. It cuts each range at file offsets that are multiples of the block size, and
//! places the pieces one after another, without looking back further than one span:
//!
//! 1. A piece that begins at most `gap` bytes behind the open span extends that span. One system
//!    call then reads both, and the bytes between.
//! 2. Any other piece opens a span behind the last one in the slot.
//! 3. A span that would not fit the slot closes the block and opens the next one. When a block
//!    closes, its pieces become copies. Pieces that are adjacent in both slot and memory become one
//!    copy.
//!
//! Each byte of the ranges is planned exactly once, and the spans of a block, with the aligned
//! pages around them, fit one slot. The cost is that of the sort; ranges that are sorted already
//! cost one pass.

use std::collections::HashSet;

use super::{Block, Extent, Plan, SlotCopy, Span};
use crate::error::{Error, Kind, Result};

/// The limits of blocks and spans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The most bytes of a slot that a block takes; a multiple of `align`. Ranges are cut at file
    /// offsets that are multiples of it, so that blocks are aligned with stripes and pages.
    pub block: u64,
    /// Ranges at most this many bytes apart in the file are read together. A write uses 0, because
    /// it must not touch the bytes between.
    pub gap: u64,
    /// Spans start in the slot at the same remainder modulo `align` as in the file, with room for the
    /// aligned pages around them, as O_DIRECT requires. 1 leaves no gaps between spans.
    pub align: u64,
    /// Whether unaligned heads and tails go to [`Plan::unaligned`].
    pub split_unaligned: bool,
    /// Whether ranges that are adjacent in memory are made adjacent in a slot, since a copy out of
    /// the slot costs more than a read of the file.
    pub pack: bool,
    /// Whether ranges may be taken in the order of memory, if they are adjacent there.
    pub reorder: bool,
}

/// The most spans of one block: tiny ranges must still spread over the workers.
const MAX_SPANS: u32 = 1024;

/// The most blocks of one request. The plan of such a request takes some gigabytes.
const MAX_BLOCKS: u64 = 1 << 26;

/// Plans `extents` in the order of the file, or of memory if they are packed there.
///
/// `starts` has the addresses at which allocations begin. No copy crosses one of them: neighbours
/// in memory may belong to different allocations, and CUDA copies to one at a time.
///
/// # Errors
/// [`Kind::Invalid`] for a range that no file or memory has, and for too many blocks.
pub(crate) fn build(mut extents: Vec<Extent>, cut: Cut, starts: &HashSet<usize>) -> Result<Plan> {
    debug_assert!(cut.block.is_multiple_of(cut.align));
    extents.retain(|e| e.length > 0);
    extents.iter().try_for_each(Extent::check)?;
    let packed = cut.pack && cut.align == 1 && pack(&mut extents, cut.reorder);
    if !packed && !extents.is_sorted_by_key(|e| e.offset) {
        extents.sort_by_key(|e| e.offset);
    }
    let blocks: u64 = extents.iter().map(|e| e.length / cut.block + 2).sum();
    if blocks > MAX_BLOCKS {
        return Err(Error::invalid(format!(
            "a request of {blocks} blocks of {} bytes is too large",
            cut.block
        ))
        .remedy("split the request, or use a larger block"));
    }

    // The number of blocks is known for long ranges only.
    let bytes: u64 = extents.iter().map(|e| e.length).sum();
    let cuts = (bytes / cut.block) as usize + 1;
    let mut builder = Builder {
        plan: Plan {
            blocks: Vec::with_capacity(cuts),
            spans: Vec::with_capacity(cuts),
            pieces: Vec::with_capacity(cuts + extents.len()),
            copies: Vec::with_capacity(cuts),
            ..Plan::default()
        },
        cut,
        starts,
        used: 0,
        end_of_span: 0,
        last_memory_end: 0,
    };
    for extent in extents {
        builder.plan.bytes += extent.length;
        let middle = if cut.split_unaligned {
            builder.take_unaligned(extent)
        } else {
            extent
        };
        builder.add(middle)?;
    }
    builder.close_block();
    Ok(builder.plan)
}

/// Brings ranges into an order in which most are adjacent in memory. Returns false if there is no
/// such order. The order changes only if `reorder` is set. A list of rows arrives in the order of
/// the file, which can differ from the order in memory.
fn pack(extents: &mut [Extent], reorder: bool) -> bool {
    if is_packed(extents) {
        return true;
    }
    if !reorder || !fills_memory(extents) {
        return false;
    }
    extents.sort_by_key(|e| e.memory);
    is_packed(extents)
}

/// Whether most ranges are adjacent in memory, in the order given.
fn is_packed(extents: &[Extent]) -> bool {
    let runs_on = |w: &[Extent]| w[0].memory + w[0].length as usize == w[1].memory;
    2 * extents.windows(2).filter(|w| runs_on(w)).count() > extents.len()
}

/// Whether the ranges cover most of the memory between the first and the last.
fn fills_memory(extents: &[Extent]) -> bool {
    let start = extents.iter().map(|e| e.memory).min().unwrap_or(0);
    let end = |e: &Extent| e.memory.saturating_add(e.length as usize);
    let end = extents.iter().map(end).max().unwrap_or(0);
    let add = |sum: u64, e: &Extent| sum.saturating_add(e.length);
    extents.iter().fold(0, add) > (end - start) as u64 / 2
}

struct Builder<'a> {
    plan: Plan,
    cut: Cut,
    /// Addresses at which allocations begin.
    starts: &'a HashSet<usize>,
    /// Bytes of the slot that the open block uses; 0 if none is open.
    used: u64,
    /// The file offset behind the open span.
    end_of_span: u64,
    /// The address behind the last piece.
    last_memory_end: usize,
}

impl Builder<'_> {
    /// Puts the unaligned head and tail aside; returns the aligned middle, which may be empty.
    fn take_unaligned(&mut self, e: Extent) -> Extent {
        let [head, middle, tail] = e.split_aligned(self.cut.align);
        let unaligned = [head, tail].into_iter().filter(|part| part.length > 0);
        self.plan.unaligned.extend(unaligned);
        middle
    }

    fn add(&mut self, e: Extent) -> Result<()> {
        let mut at = e.offset;
        while at < e.end() {
            let next_cut = (at / self.cut.block + 1) * self.cut.block;
            let end = e.end().min(next_cut);
            self.add_piece(Extent {
                offset: at,
                length: end - at,
                memory: e.memory + (at - e.offset) as usize,
            })?;
            at = end;
        }
        Ok(())
    }

    fn add_piece(&mut self, piece: Extent) -> Result<()> {
        let index = u32::try_from(self.plan.pieces.len()).map_err(|_| {
            Error::new(Kind::Invalid, "a request has more than 4 billion pieces")
                .remedy("split the request")
        })?;
        if !self.extend_span(&piece, index) {
            self.open_span(&piece, index);
        }
        self.last_memory_end = piece.memory + piece.length as usize;
        self.plan.pieces.push(piece);
        Ok(())
    }

    /// Extends the open span to the piece, if the block then stays within its size.
    fn extend_span(&mut self, piece: &Extent, index: u32) -> bool {
        if self.used == 0 || piece.offset > self.end_of_span.saturating_add(self.cut.gap) {
            return false;
        }
        let Some(span) = self.plan.spans.last_mut() else {
            return false;
        };
        // A call of its own keeps the piece adjacent in the slot as in memory. It saves a copy,
        // which costs more than the call.
        let packed = self.cut.pack && self.cut.align == 1 && self.last_memory_end == piece.memory;
        if packed && piece.offset > self.end_of_span {
            return false;
        }
        // A range that overlaps an earlier, longer one starts behind spans already cut from it.
        if piece.offset < span.offset {
            return false;
        }
        let end = piece.end().max(self.end_of_span);
        let room = self.cut.room(span.offset, end);
        let start = span.slot_offset - span.offset % self.cut.align;
        if start + room > self.cut.block {
            return false;
        }
        span.length = end - span.offset;
        span.pieces.end = index + 1;
        self.end_of_span = end;
        self.used = start + room;
        true
    }

    fn open_span(&mut self, piece: &Extent, index: u32) {
        let room = self.cut.room(piece.offset, piece.end());
        let spans = self.plan.spans.len() as u32;
        let full = self.used + room > self.cut.block
            || self
                .plan
                .blocks
                .last()
                .is_some_and(|b| spans - b.spans.start >= MAX_SPANS);
        if self.used > 0 && full {
            self.close_block();
        }
        if self.used == 0 {
            let copies = self.plan.copies.len() as u32;
            self.plan.blocks.push(Block {
                spans: spans..spans,
                copies: copies..copies,
                bytes: 0,
            });
        }
        self.plan.spans.push(Span {
            offset: piece.offset,
            length: piece.length,
            slot_offset: self.used + piece.offset % self.cut.align,
            pieces: index..index + 1,
        });
        self.used += room;
        self.end_of_span = piece.end();
    }

    fn close_block(&mut self) {
        if self.used == 0 {
            return;
        }
        let plan = &mut self.plan;
        plan.slot_bytes = plan.slot_bytes.max(self.used);
        self.used = 0;
        let Some(block) = plan.blocks.last_mut() else {
            return;
        };
        block.spans.end = plan.spans.len() as u32;
        for span in &plan.spans[block.spans.start as usize..] {
            for piece in &plan.pieces[span.pieces.start as usize..span.pieces.end as usize] {
                block.bytes += piece.length;
                let copy = SlotCopy {
                    slot_offset: span.slot_offset + (piece.offset - span.offset),
                    length: piece.length,
                    memory: piece.memory,
                };
                let first_of_block = plan.copies.len() as u32 == block.copies.start;
                match plan.copies.last_mut() {
                    Some(last)
                        if !first_of_block
                            && last.runs_on(&copy)
                            && !self.starts.contains(&copy.memory) =>
                    {
                        last.length += copy.length;
                    }
                    _ => plan.copies.push(copy),
                }
            }
        }
        block.copies.end = plan.copies.len() as u32;
    }
}

impl Cut {
    /// Slot bytes for the aligned pages around a range of the file.
    fn room(&self, start: u64, end: u64) -> u64 {
        end.next_multiple_of(self.align) - start / self.align * self.align
    }
}

impl SlotCopy {
    fn runs_on(&self, next: &SlotCopy) -> bool {
        self.slot_offset + self.length == next.slot_offset
            && self.memory + self.length as usize == next.memory
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn cut(block: u64, gap: u64, align: u64) -> Cut {
        Cut {
            block,
            gap,
            align,
            split_unaligned: false,
            pack: true,
            reorder: true,
        }
    }

    /// The plan for one allocation.
    fn built(extents: Vec<Extent>, cut: Cut) -> Result<Plan> {
        build(extents, cut, &HashSet::new())
    }

    fn extent(offset: u64, length: u64, memory: usize) -> Extent {
        Extent {
            offset,
            length,
            memory,
        }
    }

    /// (memory byte, file byte) of everything that a list of pieces moves.
    fn bytes_of(pieces: impl Iterator<Item = Extent>) -> Vec<(usize, u64)> {
        let mut all: Vec<(usize, u64)> = pieces
            .flat_map(|p| (0..p.length).map(move |i| (p.memory + i as usize, p.offset + i)))
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_large_range_is_cut_at_multiples_of_the_block() {
        for page in [PAGE, 4 * PAGE, 16 * PAGE] {
            let plan = built(vec![extent(100, 3 * page, 0)], cut(page, 0, page)).unwrap();
            let starts: Vec<u64> = plan.blocks.iter().map(|b| plan.stretch(b).0).collect();
            assert_eq!(starts, [100, page, 2 * page, 3 * page]);
        }
    }

    #[test]
    fn near_small_reads_become_one_span_and_far_ones_share_a_block() {
        let near = vec![extent(0, 10, 0), extent(50, 10, 500)];
        let plan = built(near, cut(PAGE, 64, 1)).unwrap();
        assert_eq!(plan.spans.len(), 1);
        assert_eq!(plan.copies.len(), 2);
        let far = vec![extent(0, 10, 0), extent(9000, 10, 500)];
        let plan = built(far, cut(PAGE, 64, 1)).unwrap();
        assert_eq!((plan.spans.len(), plan.blocks.len()), (2, 1));
    }

    #[test]
    fn near_reads_that_follow_each_other_in_memory_are_two_calls_but_one_copy() {
        let rows = vec![extent(0, 10, 100), extent(50, 10, 110)];
        let plan = built(rows, cut(PAGE, 64, 1)).unwrap();
        assert_eq!((plan.spans.len(), plan.copies.len()), (2, 1));
    }

    #[test]
    fn reads_far_apart_in_the_file_but_next_to_each_other_in_memory_are_one_copy() {
        let far = vec![extent(0, 512, 1000), extent(1 << 20, 512, 1512)];
        let plan = built(far, cut(PAGE, 0, 1)).unwrap();
        assert_eq!((plan.spans.len(), plan.copies.len()), (2, 1));
    }

    #[test]
    fn neighbours_in_memory_that_are_two_allocations_are_two_copies() {
        let rows = vec![
            extent(0, 512, 1000),
            extent(512, 512, 1512),
            extent(1024, 512, 2024),
        ];
        let starts = HashSet::from([1000, 2024]);
        let plan = build(rows, cut(PAGE, 0, 1), &starts).unwrap();
        let lengths: Vec<u64> = plan.copies.iter().map(|copy| copy.length).collect();
        assert_eq!((plan.spans.len(), lengths), (1, vec![1024, 512]));
    }

    #[test]
    fn random_reads_into_consecutive_memory_are_one_copy_a_block() {
        let reads = [5u64, 2, 9, 1, 7].iter().enumerate();
        let reads = reads
            .map(|(i, at)| extent(at * 10_000, 512, 512 * i))
            .collect();
        let plan = built(reads, cut(PAGE, 64, 1)).unwrap();
        assert_eq!((plan.spans.len(), plan.copies.len()), (5, 1));
    }

    #[test]
    fn ranges_in_the_order_of_the_file_that_are_adjacent_in_another_order_are_one_copy_a_block() {
        let rows = [3usize, 1, 4, 0, 2].iter().enumerate();
        let rows = rows
            .map(|(i, row)| extent(i as u64 * 10_000, 512, 4096 + 512 * row))
            .collect();
        let plan = built(rows, cut(PAGE, 64, 1)).unwrap();
        assert_eq!((plan.spans.len(), plan.copies.len()), (5, 1));
    }

    #[test]
    fn ranges_that_must_not_be_reordered_stay_in_the_order_of_the_file() {
        let rows = [3usize, 1, 4, 0, 2].iter().enumerate();
        let rows = rows.map(|(i, row)| extent(i as u64 * 512, 512, 4096 + 512 * row));
        let how = Cut {
            reorder: false,
            ..cut(PAGE, 0, 1)
        };
        let plan = built(rows.collect(), how).unwrap();
        assert_eq!((plan.spans.len(), plan.copies.len()), (1, 5));
    }

    #[test]
    fn scattered_ranges_are_read_in_the_order_of_the_file() {
        let rows = [3usize, 1, 4, 0, 2].iter().enumerate();
        let rows = rows
            .map(|(i, row)| extent(i as u64 * 10, 10, 4096 * row))
            .collect();
        let plan = built(rows, cut(PAGE, 64, 1)).unwrap();
        assert_eq!((plan.spans.len(), plan.copies.len()), (1, 5));
    }

    #[test]
    fn a_range_past_the_largest_file_offset_is_refused() {
        assert!(built(vec![extent(u64::MAX - 1, 10, 0)], cut(PAGE, 0, 1)).is_err());
        assert!(built(vec![extent(i64::MAX as u64, 1, 0)], cut(PAGE, 0, 1)).is_err());
    }

    #[test]
    fn a_request_of_more_blocks_than_memory_holds_is_refused() {
        assert!(built(vec![extent(0, 1 << 60, 0)], cut(PAGE, 0, 1)).is_err());
    }

    proptest! {
        #[test]
        fn every_byte_is_planned_exactly_once_and_fits_its_slot(
            ranges in prop::collection::vec((0u64..14_000, 0u64..7_000), 0..8),
            block_pages in 1u64..5,
            gap in 0u64..6000,
            aligned: bool,
            unaligned: bool,
            pack: bool,
            reorder: bool,
        ) {
            let align = if aligned || unaligned { PAGE } else { 1 };
            // An aligned block needs room for the page before and after a span.
            let how = Cut { block: block_pages * PAGE, gap: if unaligned { 0 } else { gap },
                            align, split_unaligned: unaligned, pack, reorder };
            let mut memory = 0;
            let extents: Vec<Extent> = ranges.iter().map(|&(offset, length)| {
                let e = extent(offset, length, memory);
                memory += length as usize + 7;
                e
            }).collect();
            let plan = built(extents.clone(), how).unwrap();

            let planned = plan.blocks.iter()
                .flat_map(|b| plan.block_pieces(b).iter().copied())
                .chain(plan.unaligned.iter().copied());
            prop_assert_eq!(bytes_of(planned), bytes_of(extents.iter().copied()));
            prop_assert_eq!(plan.bytes, extents.iter().map(|e| e.length).sum::<u64>());
            prop_assert!(plan.slot_bytes <= how.block);

            for block in &plan.blocks {
                let mut last_end = 0;
                for span in plan.spans(block) {
                    prop_assert_eq!(span.slot_offset % align, span.offset % align);
                    let start = span.slot_offset / align * align;
                    prop_assert!(start >= last_end);
                    last_end = (span.slot_offset + span.length).next_multiple_of(align);
                    prop_assert!(last_end <= plan.slot_bytes);
                    if unaligned {
                        prop_assert_eq!((span.offset % align, span.length % align), (0, 0));
                    }
                    for piece in plan.pieces(span) {
                        prop_assert!(piece.offset >= span.offset && piece.end() <= span.end());
                    }
                }
                // The copies move the same bytes as the pieces, through the slot.
                let through_slot = plan.copies(block).iter().flat_map(|c| {
                    (0..c.length).map(move |i| (c.memory + i as usize, c.slot_offset + i))
                });
                let mut through_slot: Vec<(usize, u64)> = through_slot.collect();
                through_slot.sort_unstable();
                let mut expected: Vec<(usize, u64)> = plan.spans(block).iter().flat_map(|s| {
                    plan.pieces(s).iter().flat_map(move |p| {
                        (0..p.length).map(move |i| (
                            p.memory + i as usize, s.slot_offset + (p.offset - s.offset) + i))
                    })
                }).collect();
                expected.sort_unstable();
                prop_assert_eq!(through_slot, expected);
            }
        }
    }
}
