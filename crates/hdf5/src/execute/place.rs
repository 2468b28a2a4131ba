//! Decoded elements put where they belong in host memory.

use penstock_codec::convert::Change;

use crate::placement::Patch;
use crate::plan::Item;

/// Host memory that a selection is read into, shared by workers that each write other parts.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    start: *mut u8,
    length: u64,
}

// SAFETY: whoever made it vouches for the memory until the request ends, and the jobs of a plan
// have disjoint targets.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    /// # Safety
    /// `start` is valid for writes of `length` bytes until the request that uses it is finished,
    /// and nobody else touches them meanwhile.
    pub unsafe fn new(start: *mut u8, length: u64) -> Target {
        Target { start, length }
    }

    /// # Safety
    /// No other slice of these bytes is alive.
    #[expect(
        clippy::mut_from_ref,
        reason = "the memory is the caller's, not this value's"
    )]
    pub(in crate::execute) unsafe fn slice(&self, offset: u64, length: u64) -> &mut [u8] {
        assert!(
            offset
                .checked_add(length)
                .is_some_and(|end| end <= self.length)
        );
        // SAFETY: inside the memory, as just checked; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset as usize), length as usize) }
    }

    fn check(&self, first: u64, steps: i64, element: u64) {
        let first = first as i64;
        let (low, high) = (first.min(first + steps), first.max(first + steps));
        assert!(low >= 0 && high as u64 + element <= self.length);
    }
}

/// How elements get from a decoded chunk into memory.
#[derive(Clone, Copy)]
pub struct Placer<'a> {
    pub item: Item,
    pub change: &'a Change,
    pub target: Target,
}

impl Placer<'_> {
    /// Places boxes of a chunk. `decoded` are its bytes from `from` on.
    pub fn place(&self, patches: impl Iterator<Item = Patch>, decoded: &[u8], from: u64) {
        for mut patch in patches {
            patch.source -= from;
            self.patch(&patch, decoded);
        }
    }

    /// Writes the fill value, as it is stored, to boxes of the destination.
    pub fn fill(&self, patches: impl Iterator<Item = Patch>, value: &[u8]) {
        let item = self.item;
        let part = &value[item.offset as usize..(item.offset + item.length) as usize];
        let mut element = vec![0; item.memory as usize];
        self.change.run(part, &mut element);
        for patch in patches {
            for run in patch.copies() {
                // SAFETY: jobs have disjoint targets, and this is the only slice of this one's.
                let target = unsafe { self.target.slice(run.target, run.elements * item.memory) };
                match element.as_slice() {
                    same if same.iter().all(|byte| *byte == same[0]) => target.fill(same[0]),
                    value => target
                        .chunks_exact_mut(value.len())
                        .for_each(|to| to.copy_from_slice(value)),
                }
            }
        }
    }

    fn patch(&self, patch: &Patch, decoded: &[u8]) {
        let item = self.item;
        let is_dense = item.offset == 0 && item.length == item.stored;
        let (run, inner) = match patch.dims.split_last() {
            // Elements apart from each other are gone through in one loop, not run by run.
            Some((inner, _)) if patch.run == 1 => (inner.count, Some(*inner)),
            _ => (patch.run, None),
        };
        let outer = match inner {
            Some(_) => Patch {
                dims: patch.dims[..patch.dims.len() - 1].to_vec(),
                ..patch.clone()
            },
            None => patch.clone(),
        };
        for row in outer.copies() {
            let source = &decoded[row.source as usize..];
            match inner {
                None if is_dense => {
                    let from = &source[..(run * item.stored) as usize];
                    // SAFETY: jobs have disjoint targets, and this is the only slice of this one's.
                    let to = unsafe { self.target.slice(row.target, run * item.memory) };
                    self.change.run(from, to);
                }
                None => self.row(
                    &item,
                    source,
                    row.target,
                    run,
                    item.stored,
                    item.memory as i64,
                ),
                Some(dim) => self.row(
                    &item,
                    source,
                    row.target,
                    run,
                    dim.source_stride,
                    dim.target_stride,
                ),
            }
        }
    }

    /// Elements that are the same distance apart.
    fn row(
        &self,
        item: &Item,
        source: &[u8],
        target: u64,
        count: u64,
        source_stride: u64,
        target_stride: i64,
    ) {
        self.target
            .check(target, (count as i64 - 1) * target_stride, item.memory);
        let source = &source[item.offset as usize..];
        assert!(((count - 1) * source_stride + item.length) as usize <= source.len());
        let copies = matches!(self.change, Change::Copy);
        // SAFETY: the first and the last element lie inside on both sides, as just checked.
        unsafe {
            let from = source.as_ptr();
            let to = self.target.start.add(target as usize);
            let steps = (source_stride as usize, target_stride as isize);
            match item.length {
                1 if copies => scatter::<[u8; 1]>(from, to, count, steps),
                2 if copies => scatter::<[u8; 2]>(from, to, count, steps),
                4 if copies => scatter::<[u8; 4]>(from, to, count, steps),
                8 if copies => scatter::<[u8; 8]>(from, to, count, steps),
                16 if copies => scatter::<[u8; 16]>(from, to, count, steps),
                _ => {
                    for at in 0..count as usize {
                        let to = to.offset(at as isize * steps.1);
                        self.change.run(
                            std::slice::from_raw_parts(
                                from.add(at * steps.0),
                                item.length as usize,
                            ),
                            std::slice::from_raw_parts_mut(to, item.memory as usize),
                        );
                    }
                }
            }
        }
    }
}

/// # Safety
/// All `count` elements, that many bytes apart, are valid on both sides.
unsafe fn scatter<T: Copy>(from: *const u8, to: *mut u8, count: u64, steps: (usize, isize)) {
    for at in 0..count as usize {
        // SAFETY: as promised by the caller; arrays of bytes have no alignment.
        unsafe {
            let value = from.add(at * steps.0).cast::<T>().read();
            to.offset(at as isize * steps.1).cast::<T>().write(value);
        }
    }
}
