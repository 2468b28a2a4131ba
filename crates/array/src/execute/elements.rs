//! Moves elements between a decoded chunk and host memory, in either direction.

use penstock_codec::convert::TypeConversion;

use super::memory::HostMemory;
use crate::{BoxAxis, ElementMapping, StridedBox};

/// How the elements of a plan are moved and converted.
#[derive(Clone, Copy)]
pub(super) struct Elements<'a> {
    pub mapping: ElementMapping,
    pub conversion: &'a TypeConversion,
    pub memory: HostMemory,
}

impl Elements<'_> {
    /// Moves boxes from a chunk to memory. `decoded` holds the chunk's bytes from offset `from` on.
    pub(super) fn place(&self, boxes: impl Iterator<Item = StridedBox>, decoded: &[u8], from: u64) {
        for mut strided in boxes {
            strided.chunk -= from;
            let (rows, inner) = self.rows(strided, (self.mapping.source, self.mapping.target));
            for row in rows.runs() {
                let source = &decoded[row.chunk as usize..];
                self.place_row(source, row.memory, &inner);
            }
        }
    }

    /// Moves boxes from memory to a decoded chunk.
    pub(super) fn gather(&self, boxes: impl Iterator<Item = StridedBox>, chunk: &mut [u8]) {
        for strided in boxes {
            let (rows, inner) = self.rows(strided, (self.mapping.target, self.mapping.source));
            for row in rows.runs() {
                let target = &mut chunk[row.chunk as usize..];
                self.gather_row(row.memory, target, &inner);
            }
        }
    }

    /// Fills boxes of memory with the stored fill value, converted.
    pub(super) fn fill(&self, boxes: impl Iterator<Item = StridedBox>, value: &[u8]) {
        let mapping = self.mapping;
        let part = &value[mapping.offset as usize..(mapping.offset + mapping.length) as usize];
        let mut element = vec![0; mapping.target as usize];
        self.conversion.run(part, &mut element);
        let size = element.len();
        let is_one_byte = element.iter().all(|byte| *byte == element[0]);
        for strided in boxes {
            for run in strided.runs() {
                let bytes = run.elements * mapping.target;
                // SAFETY: the jobs' elements are disjoint, and this is their only slice.
                let target = unsafe { self.memory.slice_mut(run.memory, bytes) };
                if is_one_byte && run.elements > 1 {
                    target.fill(element[0]);
                    continue;
                }
                let (from, to) = (element.as_ptr(), target.as_mut_ptr());
                // SAFETY: the slice has room for the elements of the run.
                if !unsafe { copy_pieces(size, from, to, run.elements, (0, size as isize)) } {
                    target
                        .chunks_exact_mut(size)
                        .for_each(|to| to.copy_from_slice(&element));
                }
            }
        }
    }

    /// Returns the rows of a box, and the pieces of each row, which are handled in one loop. A piece
    /// is a run of whole elements, or one element of which a part moves. `sizes` are the element
    /// sizes in the chunk and in memory.
    fn rows(&self, mut strided: StridedBox, sizes: (u64, u64)) -> (StridedBox, Pieces) {
        let is_whole = self.mapping.offset == 0 && self.mapping.length == self.mapping.source;
        let run = BoxAxis {
            count: strided.run,
            chunk_stride: sizes.0,
            memory_stride: sizes.1 as i64,
        };
        let last = strided.axes.pop();
        let elements = if is_whole { run.count } else { 1 };
        let axis = match last {
            Some(axis) if is_whole || run.count == 1 => axis,
            // The longer of both is the inner loop.
            Some(axis) if axis.count > run.count => {
                strided.axes.push(run);
                axis
            }
            Some(axis) => {
                strided.axes.push(axis);
                run
            }
            None if is_whole => BoxAxis { count: 1, ..run },
            None => run,
        };
        let pieces = Pieces {
            axis,
            length: elements * self.mapping.length,
            source: elements * self.mapping.source,
            target: elements * self.mapping.target,
        };
        (strided, pieces)
    }

    /// Moves one row from the chunk to memory; `source` starts at the row's first element.
    fn place_row(&self, source: &[u8], first: u64, pieces: &Pieces) {
        let axis = &pieces.axis;
        let reach = (axis.count as i64 - 1) * axis.memory_stride;
        let target = self.memory.elements(first, reach, pieces.target);
        let source = &source[self.mapping.offset as usize..];
        let end = (axis.count - 1) * axis.chunk_stride + pieces.length;
        assert!(end as usize <= source.len());
        let steps = (axis.chunk_stride as isize, axis.memory_stride as isize);
        // SAFETY: the asserts keep the first and the last piece inside on both sides; the jobs'
        // elements are disjoint.
        unsafe { self.move_row(source.as_ptr(), target, pieces, steps) };
    }

    /// Moves one row from memory to the chunk; `target` starts at the row's first element.
    fn gather_row(&self, first: u64, target: &mut [u8], pieces: &Pieces) {
        let axis = &pieces.axis;
        let reach = (axis.count as i64 - 1) * axis.memory_stride;
        let source = self.memory.elements(first, reach, pieces.source);
        let end = (axis.count - 1) * axis.chunk_stride + pieces.target;
        assert!(end as usize <= target.len());
        let steps = (axis.memory_stride as isize, axis.chunk_stride as isize);
        // SAFETY: the asserts keep the first and the last piece inside on both sides; the part
        // lies inside the element.
        unsafe {
            let source = source.add(self.mapping.offset as usize);
            self.move_row(source, target.as_mut_ptr(), pieces, steps);
        }
    }

    /// # Safety
    /// All pieces at these steps in bytes are valid on both sides: what moves of each from `from` on,
    /// and the room for the result from `to` on.
    unsafe fn move_row(
        &self,
        from: *const u8,
        to: *mut u8,
        pieces: &Pieces,
        steps: (isize, isize),
    ) {
        let copies = matches!(self.conversion, TypeConversion::Copy);
        let (length, room) = (pieces.length as usize, pieces.target as usize);
        let count = pieces.axis.count;
        // SAFETY: upheld by the caller.
        unsafe {
            if copies && copy_pieces(length, from, to, count, steps) {
                return;
            }
            if !copies && count > FEW && is_unit(length) && is_unit(room) {
                return self.convert_row(from, to, count, (length, room), steps);
            }
            for at in 0..count as isize {
                self.conversion.run(
                    std::slice::from_raw_parts(from.offset(at * steps.0), length),
                    std::slice::from_raw_parts_mut(to.offset(at * steps.1), room),
                );
            }
        }
    }

    /// Converts single numbers of a row, many in one call.
    ///
    /// # Safety
    /// As for [`move_row`](Self::move_row). The sizes are those of `copy_pieces`.
    unsafe fn convert_row(
        &self,
        from: *const u8,
        to: *mut u8,
        count: u64,
        (length, room): (usize, usize),
        steps: (isize, isize),
    ) {
        const MOST: u64 = 256;
        let (mut source, mut target) = ([0u8; 16 * MOST as usize], [0u8; 16 * MOST as usize]);
        let mut done = 0;
        while done < count {
            let some = MOST.min(count - done);
            let (source, target) = (
                &mut source[..some as usize * length],
                &mut target[..some as usize * room],
            );
            // SAFETY: upheld by the caller; the buffers have room for `some` numbers.
            unsafe {
                let from = from.offset(done as isize * steps.0);
                let into = source.as_mut_ptr();
                copy_pieces(length, from, into, some, (steps.0, length as isize));
                self.conversion.run(source, target);
                let to = to.offset(done as isize * steps.1);
                copy_pieces(room, target.as_ptr(), to, some, (room as isize, steps.1));
            }
            done += some;
        }
    }
}

/// Numbers that are converted one by one sooner than through buffers.
const FEW: u64 = 8;

/// Whether [`copy_pieces`] copies pieces of this size.
fn is_unit(size: usize) -> bool {
    matches!(size, 1 | 2 | 4 | 8 | 16)
}

/// Copies pieces of a size that [`is_unit`] accepts; returns false for other sizes.
///
/// # Safety
/// As for [`copy_row`].
unsafe fn copy_pieces(
    size: usize,
    from: *const u8,
    to: *mut u8,
    count: u64,
    steps: (isize, isize),
) -> bool {
    // SAFETY: upheld by the caller.
    unsafe {
        match size {
            1 => copy_row::<[u8; 1]>(from, to, count, steps),
            2 => copy_row::<[u8; 2]>(from, to, count, steps),
            4 => copy_row::<[u8; 4]>(from, to, count, steps),
            8 => copy_row::<[u8; 8]>(from, to, count, steps),
            16 => copy_row::<[u8; 16]>(from, to, count, steps),
            _ => return false,
        }
    }
    true
}

/// The pieces of a row of a box. Sizes are in bytes.
struct Pieces {
    /// Number of pieces, and the distances between them.
    axis: BoxAxis,
    /// What moves of a piece.
    length: u64,
    /// Size of a piece at the source, and of its place at the target.
    source: u64,
    target: u64,
}

/// # Safety
/// All `count` elements at these steps in bytes are valid on both sides.
unsafe fn copy_row<T: Copy>(from: *const u8, to: *mut u8, count: u64, steps: (isize, isize)) {
    for at in 0..count as isize {
        // SAFETY: the caller guarantees it; byte arrays have no alignment requirement.
        unsafe {
            let value = from.offset(at * steps.0).cast::<T>().read();
            to.offset(at * steps.1).cast::<T>().write(value);
        }
    }
}

/// Copies the elements of boxes from one decoded chunk to another.
pub(super) fn merge(
    boxes: impl Iterator<Item = StridedBox>,
    size: u64,
    from: &[u8],
    into: &mut [u8],
) {
    for strided in boxes {
        for run in strided.runs() {
            let (start, length) = (run.chunk as usize, (run.elements * size) as usize);
            into[start..start + length].copy_from_slice(&from[start..start + length]);
        }
    }
}
