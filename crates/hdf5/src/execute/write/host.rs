//! Elements gathered from host memory into a decoded chunk.

use penstock_codec::convert::Change;

use crate::placement::Patch;
use crate::plan::Item;

/// Host memory that is written from, shared by workers that only read it.
#[derive(Clone, Copy, Debug)]
pub struct HostArray {
    start: *const u8,
    length: u64,
}

// SAFETY: whoever made it vouches for the memory until the request ends, and nobody writes to it.
unsafe impl Send for HostArray {}
// SAFETY: as above.
unsafe impl Sync for HostArray {}

impl HostArray {
    /// # Safety
    /// `start` is valid for reads of `length` bytes until the request that uses it is finished, and
    /// nobody writes to them meanwhile.
    pub unsafe fn new(start: *const u8, length: u64) -> HostArray {
        HostArray { start, length }
    }

    pub fn slice(&self, offset: u64, length: u64) -> &[u8] {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length));
        // SAFETY: inside the memory, as just checked; the maker vouches for the rest.
        unsafe { std::slice::from_raw_parts(self.start.add(offset as usize), length as usize) }
    }

    fn check(&self, first: u64, reach: i64, element: u64) {
        let first = first as i64;
        let (low, high) = (first.min(first + reach), first.max(first + reach));
        assert!(low >= 0 && high as u64 + element <= self.length);
    }
}

/// How elements get from memory into a decoded chunk. In patches the chunk is the source.
#[derive(Clone, Copy)]
pub struct Gatherer<'a> {
    /// Of an element in memory; its `memory` is the size in the chunk.
    pub item: Item,
    pub change: &'a Change,
    pub array: HostArray,
}

impl Gatherer<'_> {
    pub fn gather(&self, patches: impl Iterator<Item = Patch>, chunk: &mut [u8]) {
        patches.for_each(|patch| self.patch(patch, chunk));
    }

    fn patch(&self, mut patch: Patch, chunk: &mut [u8]) {
        let item = self.item;
        let is_dense = item.offset == 0 && item.length == item.stored;
        // Elements apart from each other are gone through in one loop, not run by run.
        let inner = match patch.run {
            1 => patch.dims.pop(),
            _ => None,
        };
        for row in patch.copies() {
            let to = &mut chunk[row.source as usize..];
            match inner {
                None if is_dense => {
                    let from = self.array.slice(row.target, patch.run * item.stored);
                    self.change
                        .run(from, &mut to[..(patch.run * item.memory) as usize]);
                }
                None => {
                    let strides = (item.stored as i64, item.memory);
                    self.row(row.target, to, patch.run, strides);
                }
                Some(dim) => {
                    let strides = (dim.target_stride, dim.source_stride);
                    self.row(row.target, to, dim.count, strides);
                }
            }
        }
    }

    /// Elements that are the same distance apart: in memory, and in the chunk.
    fn row(&self, from: u64, to: &mut [u8], count: u64, strides: (i64, u64)) {
        let item = self.item;
        self.array
            .check(from, (count as i64 - 1) * strides.0, item.stored);
        assert!(((count - 1) * strides.1 + item.memory) as usize <= to.len());
        let copies = matches!(self.change, Change::Copy);
        // SAFETY: the first and the last element lie inside on both sides, as just checked.
        unsafe {
            let from = self.array.start.add((from + item.offset) as usize);
            let to = to.as_mut_ptr();
            let steps = (strides.0 as isize, strides.1 as usize);
            match item.length {
                1 if copies => collect::<[u8; 1]>(from, to, count, steps),
                2 if copies => collect::<[u8; 2]>(from, to, count, steps),
                4 if copies => collect::<[u8; 4]>(from, to, count, steps),
                8 if copies => collect::<[u8; 8]>(from, to, count, steps),
                16 if copies => collect::<[u8; 16]>(from, to, count, steps),
                _ => {
                    for at in 0..count as usize {
                        self.change.run(
                            std::slice::from_raw_parts(
                                from.offset(at as isize * steps.0),
                                item.length as usize,
                            ),
                            std::slice::from_raw_parts_mut(
                                to.add(at * steps.1),
                                item.memory as usize,
                            ),
                        );
                    }
                }
            }
        }
    }
}

/// # Safety
/// All `count` elements, that many bytes apart, are valid on both sides.
unsafe fn collect<T: Copy>(from: *const u8, to: *mut u8, count: u64, steps: (isize, usize)) {
    for at in 0..count as usize {
        // SAFETY: as promised by the caller; arrays of bytes have no alignment.
        unsafe {
            let value = from.offset(at as isize * steps.0).cast::<T>().read();
            to.add(at * steps.1).cast::<T>().write(value);
        }
    }
}

/// Copies the elements of patches from one decoded chunk into another.
pub fn merge(patches: impl Iterator<Item = Patch>, size: u64, from: &[u8], into: &mut [u8]) {
    for patch in patches {
        for run in patch.copies() {
            let (start, length) = (run.source as usize, (run.elements * size) as usize);
            into[start..start + length].copy_from_slice(&from[start..start + length]);
        }
    }
}
