//! Cuts the caller's ranges into blocks.
//!
//! The planner sorts the ranges by file offset, or keeps them in the order of memory if they are
//! packed there. It cuts each range at file offsets that are multiples of the block size, and
//! places the pieces one after another, without looking back further than one span:
//!
//! 1. A piece that begins at most `gap` bytes behind the open span extends that span. One system
//!    call then reads both, and the bytes between. A piece that is adjacent in memory, but not in
//!    the file, has a call of its own if ranges are packed and it reads few bytes a second time.
//! 2. Any other piece opens a span behind the last one in the slot.
//! 3. A span that would not fit the slot closes the block and opens the next one.
//! 4. Pieces that are adjacent in both slot and memory, or at regular distances there, become one copy.
//!
//! Each byte of the ranges is planned exactly once, and the spans of a block, with the aligned
//! pages around them, fit one slot. The cost is that of the sort; ranges that are sorted already
//! cost one pass.

use std::collections::BTreeSet;

use super::{Block, Extent, Plan, Rows, SlotCopy, Span};
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

/// The most reads or writes of one block: tiny ranges must still spread over the workers.
const MAX_CALLS: u64 = 1024;
/// Bytes that a piece may read again to stay adjacent in the slot as in memory: a copy to the GPU
/// takes 3 to 5 µs, in which a thread reads this much of cached files.
const MAX_READ_TWICE: u64 = 32 << 10;

/// The gap between rows of this length that takes no longer to read than a system call for each row.
/// On an H200 host, a call takes 0.36 us and 0.18 ns a byte, and a byte of a long read 0.12 ns.
fn near(length: u64) -> u64 {
    (4 << 10) + length / 2
}

/// The most blocks of one request. The plan of such a request takes some gigabytes.
const MAX_BLOCKS: u64 = 1 << 26;

/// Plans `extents` in the order of the file, or of memory if they are packed there.
///
/// `starts` has the addresses at which allocations begin. No copy crosses one of them: neighbours
/// in memory may belong to different allocations, and CUDA copies to one at a time.
///
/// # Errors
/// [`Kind::Invalid`] for a range that no file or memory has, and for too many blocks.
pub(crate) fn build(mut extents: Vec<Extent>, cut: Cut, starts: &BTreeSet<usize>) -> Result<Plan> {
    debug_assert!(cut.block.is_multiple_of(cut.align));
    extents.retain(|e| e.length > 0);
    extents.iter().try_for_each(Extent::check)?;
    let packed = cut.packs() && pack(&mut extents, cut.reorder);
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

    let bytes = extents.iter().map(|e| e.length).sum();
    let mut builder = Builder::new(cut, starts, bytes, extents.len());
    for extent in extents {
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

/// Plans rows for a read of GPU memory through the page cache and slots, in the order given, which is
/// that of the file. Blocks of several rows have no pieces. All memory is one allocation.
///
/// Rows that are near each other in the file are read with what is between them.
///
/// # Errors
/// As for [`build`].
pub(crate) fn build_rows(all: &[Rows], cut: Cut) -> Result<Plan> {
    debug_assert!(cut.align == 1 && !cut.split_unaligned);
    let starts = BTreeSet::new();
    let bytes = all.iter().map(Rows::bytes).sum();
    let mut builder = Builder::new(cut, &starts, bytes, all.len());
    for rows in all {
        if rows.count > 1 && rows.first.length <= cut.block {
            builder.add_rows(*rows);
        } else {
            (0..rows.count).try_for_each(|index| builder.add(rows.row(index)))?;
        }
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
    starts: &'a BTreeSet<usize>,
    /// Bytes of the slot that the open block uses; 0 if none is open.
    used: u64,
    /// Reads or writes of the open block.
    calls: u64,
    /// The file offset behind the open span.
    end_of_span: u64,
    /// The address behind the last piece.
    last_memory_end: usize,
}

impl<'a> Builder<'a> {
    fn new(cut: Cut, starts: &'a BTreeSet<usize>, bytes: u64, ranges: usize) -> Builder<'a> {
        // The number of blocks is known for long ranges only.
        let cuts = (bytes / cut.block) as usize + 1;
        Builder {
            plan: Plan {
                blocks: Vec::with_capacity(cuts),
                spans: Vec::with_capacity(cuts),
                pieces: Vec::with_capacity(cuts + ranges),
                copies: Vec::with_capacity(cuts),
                ..Plan::default()
            },
            cut,
            starts,
            used: 0,
            calls: 0,
            end_of_span: 0,
            last_memory_end: 0,
        }
    }

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

    /// Adds rows of at most a block each: in a block, as one span and one copy.
    fn add_rows(&mut self, mut rows: Rows) {
        let length = rows.first.length;
        let together = rows.gap() <= near(length);
        while rows.count > 0 {
            let room = (self.cut.block - self.used).checked_sub(length);
            let fit = match room.filter(|_| self.calls < MAX_CALLS) {
                Some(more) if together => 1 + more / rows.step,
                Some(more) => (1 + more / length).min(MAX_CALLS - self.calls),
                None => {
                    self.close_block();
                    continue;
                }
            };
            let count = fit.min(rows.count);
            let (span_length, reads, slot_pitch) = if together {
                ((count - 1) * rows.step + length, 1, rows.step)
            } else {
                (length, count, length)
            };
            let pieces = self.plan.pieces.len() as u32;
            let place = self.used;
            self.push_span(Span {
                offset: rows.first.offset,
                length: span_length,
                reads,
                step: rows.step,
                slot_offset: place,
                pieces: pieces..pieces,
            });
            self.used += reads * span_length;
            self.push_copy(if (slot_pitch, rows.pitch) == (length, length) {
                SlotCopy::one(place, count * length, rows.first.memory)
            } else {
                SlotCopy {
                    slot_offset: place,
                    length,
                    memory: rows.first.memory,
                    rows: count,
                    slot_pitch,
                    pitch: rows.pitch,
                }
            });
            rows = rows.from(count);
        }
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
        self.add_copy(&piece);
        Ok(())
    }

    /// Adds the copy of a piece in the open span.
    fn add_copy(&mut self, piece: &Extent) {
        if let Some(span) = self.plan.spans.last() {
            let place = span.slot_offset + (piece.offset - span.offset);
            self.push_copy(SlotCopy::one(place, piece.length, piece.memory));
        }
    }

    fn push_copy(&mut self, copy: SlotCopy) {
        let plan = &mut self.plan;
        let Some(block) = plan.blocks.last_mut() else {
            return;
        };
        block.bytes += copy.rows * copy.length;
        let begins_between = |from: usize, end: usize| {
            from < end && self.starts.range(from + 1..end).next().is_some()
        };
        let end = copy.memory + copy.length as usize;
        let is_joined = block.copies.end > block.copies.start
            && plan
                .copies
                .last_mut()
                .is_some_and(|last| !begins_between(last.memory, end) && last.append(&copy));
        if !is_joined {
            plan.copies.push(copy);
            block.copies.end += 1;
        }
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
        let packed = self.cut.packs() && self.last_memory_end == piece.memory;
        let behind = self.end_of_span.min(piece.end());
        let read_twice = behind.saturating_sub(piece.offset);
        if packed && piece.offset != self.end_of_span && read_twice <= MAX_READ_TWICE {
            return false;
        }
        // A range that overlaps an earlier, longer one starts behind spans already cut from it.
        if piece.offset < span.offset || span.reads > 1 {
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
        let full = self.used + room > self.cut.block || self.calls >= MAX_CALLS;
        if self.used > 0 && full {
            self.close_block();
        }
        self.push_span(Span {
            offset: piece.offset,
            length: piece.length,
            reads: 1,
            step: 0,
            slot_offset: self.used + piece.offset % self.cut.align,
            pieces: index..index + 1,
        });
        self.used += room;
    }

    /// Adds a span to the open block, or to a new one if none is open.
    fn push_span(&mut self, span: Span) {
        let spans = self.plan.spans.len() as u32;
        if self.used == 0 {
            let copies = self.plan.copies.len() as u32;
            self.plan.blocks.push(Block {
                spans: spans..spans,
                copies: copies..copies,
                bytes: 0,
            });
        }
        if let Some(block) = self.plan.blocks.last_mut() {
            block.spans.end = spans + 1;
        }
        self.end_of_span = span.end();
        self.calls += span.reads;
        self.plan.calls += span.reads;
        self.plan.spans.push(span);
    }

    fn close_block(&mut self) {
        self.plan.slot_bytes = self.plan.slot_bytes.max(self.used);
        (self.used, self.calls) = (0, 0);
    }
}

impl Cut {
    /// Whether ranges that are adjacent in memory are made adjacent in a slot.
    fn packs(&self) -> bool {
        self.pack && self.align == 1
    }

    /// Slot bytes for the aligned pages around a range of the file.
    fn room(&self, start: u64, end: u64) -> u64 {
        end.next_multiple_of(self.align) - start / self.align * self.align
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;
    use std::ptr;

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
        build(extents, cut, &BTreeSet::new())
    }

    fn extent(offset: u64, length: u64, memory: usize) -> Extent {
        Extent {
            offset,
            length,
            memory,
        }
    }

    /// The rows of all copies.
    fn rows_of(plan: &Plan) -> u64 {
        plan.copies.iter().map(|copy| copy.rows).sum()
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
    fn short_pieces_that_overlap_are_read_again_rather_than_copied_one_by_one() {
        let repeats = |length: u64, step: u64, count: usize| {
            let each = |i: usize| extent(i as u64 * step, length, i * length as usize);
            (0..count).map(each).collect::<Vec<_>>()
        };
        let of = |extents| built(extents, cut(4 << 20, 0, 1)).unwrap();
        // The same 64 bytes, windows of 1 KiB every 512 bytes, and windows that share 128 KiB.
        assert_eq!(of(repeats(64, 0, 1000)).copies.len(), 1);
        assert_eq!(of(repeats(1024, 512, 1000)).copies.len(), 1);
        let long = of(repeats(256 << 10, 128 << 10, 8));
        assert_eq!((long.spans.len(), rows_of(&long)), (1, 8));
    }

    #[test]
    fn near_small_reads_become_one_span_and_far_ones_share_a_block() {
        let near = vec![extent(0, 10, 0), extent(50, 10, 500)];
        let plan = built(near, cut(PAGE, 64, 1)).unwrap();
        assert_eq!((plan.spans.len(), rows_of(&plan)), (1, 2));
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

    fn built_rows(all: &[Rows], block: u64) -> Plan {
        let plan = build_rows(all, cut(block, 64, 1)).unwrap();
        let through_slot = |block: &Block| {
            let reads = plan
                .spans(block)
                .iter()
                .flat_map(|span| span.in_slot(ptr::null_mut()));
            let places =
                reads.flat_map(|e| (0..e.length).map(move |i| (e.memory as u64 + i, e.offset + i)));
            let file: HashMap<u64, u64> = places.collect();
            let copies = plan.copies(block).iter().flat_map(|copy| {
                let bytes = move |(place, memory)| {
                    (0..copy.length).map(move |i| (memory + i as usize, place + i))
                };
                copy.each_row().flat_map(bytes)
            });
            let moved: Vec<(usize, u64)> = copies.map(|(at, place)| (at, file[&place])).collect();
            assert_eq!(moved.len() as u64, block.bytes);
            moved
        };
        let mut moved: Vec<(usize, u64)> = plan.blocks.iter().flat_map(through_slot).collect();
        moved.sort_unstable();
        let rows = |rows: &Rows| (0..rows.count).map(|row| rows.row(row)).collect::<Vec<_>>();
        assert_eq!(moved, bytes_of(all.iter().flat_map(rows)));
        assert!(plan.slot_bytes <= block);
        plan
    }

    fn columns_of(count: u64, offset: u64, length: u64, step: u64) -> Rows {
        Rows {
            first: extent(offset, length, 0),
            count,
            step,
            pitch: length,
        }
    }

    #[test]
    fn near_rows_are_one_read_and_one_copy_a_block() {
        let plan = built_rows(&[columns_of(100, 5, 100, 300)], PAGE);
        assert_eq!(
            (plan.blocks.len(), plan.spans.len(), plan.copies.len()),
            (8, 8, 8)
        );
        let copy = SlotCopy {
            slot_offset: 0,
            length: 100,
            memory: 0,
            rows: 14,
            slot_pitch: 300,
            pitch: 100,
        };
        assert_eq!(plan.copies[0], copy);
        assert_eq!((plan.calls, plan.spans[0].length), (8, 13 * 300 + 100));
    }

    #[test]
    fn far_rows_are_read_one_by_one_into_one_copy_a_block() {
        let plan = built_rows(&[columns_of(50, 5, 100, 6000)], PAGE);
        assert_eq!(
            (plan.calls, plan.spans.len(), plan.copies.len()),
            (50, 2, 2)
        );
        assert_eq!(plan.copies[0], SlotCopy::one(0, 4000, 0));
    }

    #[test]
    fn many_small_far_rows_are_several_blocks() {
        let plan = built_rows(&[columns_of(2500, 5, 8, 6000)], 64 * PAGE);
        let calls: Vec<u64> = plan.blocks.iter().map(|b| plan.spans(b)[0].reads).collect();
        assert_eq!((calls, plan.copies.len()), (vec![1024, 1024, 452], 3));
        let few = columns_of(300, 5, 8, 6000);
        let apart = (0..10).map(|i| Rows {
            first: extent(5 + i * 2_000_000, 8, i as usize * 3000),
            ..few
        });
        let plan = built_rows(&apart.collect::<Vec<_>>(), 64 * PAGE);
        let reads = |block| plan.spans(block).iter().map(|span| span.reads).sum::<u64>();
        assert_eq!(
            plan.blocks.iter().map(reads).collect::<Vec<_>>(),
            [1024, 1024, 952]
        );
    }

    #[test]
    fn rows_longer_than_a_block_are_cut() {
        let plan = built_rows(&[columns_of(3, 5, 2 * PAGE, 5 * PAGE)], PAGE);
        assert!(plan.blocks.len() >= 6);
    }

    #[test]
    fn pieces_at_regular_distances_in_slot_and_memory_are_one_copy() {
        let pitched = (0..5).map(|i| extent(i * 100, 60, i as usize * 1000));
        let plan = built(pitched.collect(), cut(PAGE, 64, 1)).unwrap();
        assert_eq!((plan.spans.len(), plan.copies.len()), (1, 1));
        assert_eq!(
            (plan.copies[0].slot_pitch, plan.copies[0].pitch),
            (100, 1000)
        );
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
        let starts = BTreeSet::from([1000, 2024]);
        let plan = build(rows, cut(PAGE, 0, 1), &starts).unwrap();
        let lengths: Vec<u64> = plan.copies.iter().map(|copy| copy.length).collect();
        assert_eq!((plan.spans.len(), lengths), (1, vec![1024, 512]));
    }

    #[test]
    fn a_copy_of_several_rows_stays_in_one_allocation() {
        let places = [100, 1100, 2100, 3100, 3200, 3300, 4300];
        let ranges = places.iter().enumerate();
        let ranges = ranges.map(|(i, memory)| extent(100 * i as u64, 50, *memory));
        let starts = BTreeSet::from([0, 1000, 2000, 3000]);
        let plan = build(ranges.collect(), cut(PAGE, 64, 1), &starts).unwrap();
        let rows: Vec<u64> = plan.copies.iter().map(|copy| copy.rows).collect();
        assert_eq!(rows, [1, 1, 1, 3, 1]);
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
        assert_eq!((plan.spans.len(), rows_of(&plan)), (1, 5));
    }

    #[test]
    fn scattered_ranges_are_read_in_the_order_of_the_file() {
        let rows = [3usize, 1, 4, 0, 2].iter().enumerate();
        let rows = rows
            .map(|(i, row)| extent(i as u64 * 10, 10, 4096 * row))
            .collect();
        let plan = built(rows, cut(PAGE, 64, 1)).unwrap();
        assert_eq!((plan.spans.len(), rows_of(&plan)), (1, 5));
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
        fn every_byte_of_rows_is_planned_exactly_once_and_fits_its_slot(
            all in prop::collection::vec(
                (1u64..12, 1u64..3000, prop_oneof![0u64..300, 0u64..9000], 0u64..200, 0u64..5000), 1..4),
            block_pages in 1u64..5,
        ) {
            let (mut offset, mut memory) = (0, 0);
            let rows: Vec<Rows> = all.iter().map(|&(count, length, gap, apart, before)| {
                let rows = Rows { first: extent(offset + before, length, memory), count,
                                  step: length + gap, pitch: length + apart };
                offset = rows.last().end();
                memory = rows.last().memory + length as usize;
                rows
            }).collect();
            built_rows(&rows, block_pages * PAGE);
        }

        #[test]
        fn every_byte_is_planned_exactly_once_and_fits_its_slot(
            ranges in prop::collection::vec(
                (0u64..14_000, 0u64..7_000, prop::sample::select(vec![0, 7])), 0..8),
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
            let extents: Vec<Extent> = ranges.iter().map(|&(offset, length, apart)| {
                let e = extent(offset, length, memory);
                memory += length as usize + apart;
                e
            }).collect();
            let plan = built(extents.clone(), how).unwrap();

            let planned = plan.blocks.iter()
                .flat_map(|b| plan.block_pieces(b).iter().copied())
                .chain(plan.unaligned.iter().copied());
            prop_assert_eq!(bytes_of(planned), bytes_of(extents.iter().copied()));
            let moved = plan.blocks.iter().map(|b| b.bytes);
            let apart = plan.unaligned.iter().map(|e| e.length);
            let all: u64 = extents.iter().map(|e| e.length).sum();
            prop_assert_eq!(moved.chain(apart).sum::<u64>(), all);
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
                    c.each_row().flat_map(|(place, memory)| {
                        (0..c.length).map(move |i| (memory + i as usize, place + i))
                    })
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
