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
                match inner {
                    Inner::Dense(count) => {
                        let source = &source[..(count * self.mapping.source) as usize];
                        let bytes = count * self.mapping.target;
                        // SAFETY: the jobs' elements are disjoint, and this is their only slice.
                        let target = unsafe { self.memory.slice_mut(row.memory, bytes) };
                        self.conversion.run(source, target);
                    }
                    Inner::Apart(axis) => self.place_row(source, row.memory, axis),
                }
            }
        }
    }

    /// Moves boxes from memory to a decoded chunk.
    pub(super) fn gather(&self, boxes: impl Iterator<Item = StridedBox>, chunk: &mut [u8]) {
        for strided in boxes {
            let (rows, inner) = self.rows(strided, (self.mapping.target, self.mapping.source));
            for row in rows.runs() {
                let target = &mut chunk[row.chunk as usize..];
                match inner {
                    Inner::Dense(count) => {
                        let bytes = count * self.mapping.source;
                        let source = self.memory.slice(row.memory, bytes);
                        let target = &mut target[..(count * self.mapping.target) as usize];
                        self.conversion.run(source, target);
                    }
                    Inner::Apart(axis) => self.gather_row(row.memory, target, axis),
                }
            }
        }
    }

    /// Fills boxes of memory with the stored fill value, converted.
    pub(super) fn fill(&self, boxes: impl Iterator<Item = StridedBox>, value: &[u8]) {
        let mapping = self.mapping;
        let part = &value[mapping.offset as usize..(mapping.offset + mapping.length) as usize];
        let mut element = vec![0; mapping.target as usize];
        self.conversion.run(part, &mut element);
        for strided in boxes {
            for run in strided.runs() {
                let bytes = run.elements * mapping.target;
                // SAFETY: the jobs' elements are disjoint, and this is their only slice.
                let target = unsafe { self.memory.slice_mut(run.memory, bytes) };
                match element.as_slice() {
                    same if same.iter().all(|byte| *byte == same[0]) => target.fill(same[0]),
                    value => target
                        .chunks_exact_mut(value.len())
                        .for_each(|to| to.copy_from_slice(value)),
                }
            }
        }
    }

    /// Returns the rows of a box, and the form of each row. Elements with gaps are handled in one
    /// loop, not as one run each. `sizes` are the element sizes in the chunk and in memory.
    fn rows(&self, mut strided: StridedBox, sizes: (u64, u64)) -> (StridedBox, Inner) {
        let is_dense = self.mapping.offset == 0 && self.mapping.length == self.mapping.source;
        let last = match strided.run {
            1 => strided.axes.pop(),
            _ => None,
        };
        let inner = match last {
            Some(axis) => Inner::Apart(axis),
            None if is_dense => Inner::Dense(strided.run),
            None => Inner::Apart(BoxAxis {
                count: strided.run,
                chunk_stride: sizes.0,
                memory_stride: sizes.1 as i64,
            }),
        };
        (strided, inner)
    }

    /// Moves one row from the chunk to memory; `source` starts at the row's first element.
    fn place_row(&self, source: &[u8], first: u64, axis: BoxAxis) {
        let reach = (axis.count as i64 - 1) * axis.memory_stride;
        let target = self.memory.elements(first, reach, self.mapping.target);
        let source = &source[self.mapping.offset as usize..];
        let end = (axis.count - 1) * axis.chunk_stride + self.mapping.length;
        assert!(end as usize <= source.len());
        let steps = (axis.chunk_stride as isize, axis.memory_stride as isize);
        // SAFETY: the asserts keep the first and the last element inside on both sides; the jobs'
        // elements are disjoint.
        unsafe { self.move_row(source.as_ptr(), target, axis.count, steps) };
    }

    /// Moves one row from memory to the chunk; `target` starts at the row's first element.
    fn gather_row(&self, first: u64, target: &mut [u8], axis: BoxAxis) {
        let reach = (axis.count as i64 - 1) * axis.memory_stride;
        let source = self.memory.elements(first, reach, self.mapping.source);
        let end = (axis.count - 1) * axis.chunk_stride + self.mapping.target;
        assert!(end as usize <= target.len());
        let steps = (axis.memory_stride as isize, axis.chunk_stride as isize);
        // SAFETY: the asserts keep the first and the last element inside on both sides; the part
        // lies inside the element.
        unsafe {
            let source = source.add(self.mapping.offset as usize);
            self.move_row(source, target.as_mut_ptr(), axis.count, steps);
        }
    }

    /// # Safety
    /// All `count` elements at these steps in bytes are valid on both sides: the part to move from
    /// `from` on, and the room for the result from `to` on.
    unsafe fn move_row(&self, from: *const u8, to: *mut u8, count: u64, steps: (isize, isize)) {
        let copies = matches!(self.conversion, TypeConversion::Copy);
        let (length, room) = (self.mapping.length as usize, self.mapping.target as usize);
        // SAFETY: upheld by the caller.
        unsafe {
            match length {
                1 if copies => copy_row::<[u8; 1]>(from, to, count, steps),
                2 if copies => copy_row::<[u8; 2]>(from, to, count, steps),
                4 if copies => copy_row::<[u8; 4]>(from, to, count, steps),
                8 if copies => copy_row::<[u8; 8]>(from, to, count, steps),
                16 if copies => copy_row::<[u8; 16]>(from, to, count, steps),
                _ => {
                    for at in 0..count as isize {
                        self.conversion.run(
                            std::slice::from_raw_parts(from.offset(at * steps.0), length),
                            std::slice::from_raw_parts_mut(to.offset(at * steps.1), room),
                        );
                    }
                }
            }
        }
    }
}

/// The form of a row of a box.
#[derive(Clone, Copy)]
enum Inner {
    /// This many whole elements without gaps.
    Dense(u64),
    /// Elements at equal distances.
    Apart(BoxAxis),
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
