//! Converts selections, which HDF5 passes to the driver as dataspaces of file and memory, to
//! ranges.

use std::cell::Cell;
use std::ffi::c_uint;
use std::mem::MaybeUninit;
use std::sync::atomic::{
    AtomicI64,
    Ordering::{AcqRel, Relaxed},
};

use penstock_engine::Extent;
use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{H5S_SEL_ALL, Hdf5, haddr_t, hid_t, hsize_t};

use crate::survey::Survey;

/// A selection in the file and the matching one in memory. Their elements correspond in order.
pub(crate) struct Pair {
    pub file_space: hid_t,
    pub memory_space: hid_t,
    /// File address of the first element of the file dataspace.
    pub offset: haddr_t,
    /// Memory address of the first element of the memory dataspace.
    pub memory: usize,
    pub element_size: usize,
}

/// Number of ranges in a batch; they take some megabytes.
const BATCH: usize = 1 << 16;

/// Number of ranges in a batch if consecutive ranges lie close together. They fit in the
/// processor's cache.
const FEW: usize = 1 << 11;

/// Number of ranges at the start of a batch that decide which of the two sizes it gets.
const SAMPLE: usize = 64;

thread_local! {
    /// The memory of the ranges, reused for the next selection. Most selections have one range.
    static RANGES: Cell<Vec<Extent>> = const { Cell::new(Vec::new()) };
}

impl Pair {
    /// Calls `act` with the ranges of the selection, in batches.
    ///
    /// # Safety
    /// The spaces are dataspaces of the `iterators`' HDF5, whose lock is held.
    pub(crate) unsafe fn each(
        &self,
        iterators: &Iterators,
        act: &mut dyn FnMut(&[Extent]) -> Result<()>,
    ) -> Result<()> {
        let hdf5 = iterators.hdf5;
        // SAFETY: the caller guarantees it.
        let (elements, kind) = unsafe {
            (
                (hdf5.H5Sget_select_npoints)(self.file_space),
                (hdf5.H5Sget_select_type)(self.memory_space),
            )
        };
        let elements = u64::try_from(elements).map_err(|_| unreadable())?;
        let size = self.element_size as u64;
        let bytes = elements.saturating_mul(size);
        let (mut in_file, mut in_memory) = (Fetched::new(), Fetched::new());
        let of = |space, fetched| {
            // SAFETY: upheld by the caller.
            let source = unsafe { iterators.take(space)? };
            Ok(Cursor {
                source: Some(source),
                element_size: size,
                fetched,
                rest: Run::default(),
            })
        };
        let file = of(self.file_space, &mut in_file)?;
        let memory = match kind {
            // A whole array is one run, for which HDF5 need not be called.
            H5S_SEL_ALL => Cursor {
                source: None,
                element_size: size,
                fetched: &mut in_memory,
                rest: Run {
                    start: 0,
                    length: bytes,
                },
            },
            _ => of(self.memory_space, &mut in_memory)?,
        };
        // HDF5 may close files at the end of a thread, when its thread-local memory no longer
        // exists.
        let mut batch = RANGES.try_with(Cell::take).unwrap_or_default();
        batch.clear();
        self.walk(file, memory, bytes, &mut batch, act)?;
        let acted = act(&batch);
        batch.shrink_to(FEW);
        let _ = RANGES.try_with(|ranges| ranges.set(batch));
        acted
    }

    /// Walks through both sides of the selection, which have this many bytes. Calls `act` with each full
    /// batch, and leaves the last one.
    ///
    /// Each side is a sequence of runs, with ends of their own. A range reaches to the next end of either
    /// side:
    ///
    /// ```text
    /// file    |--------|---|------|
    /// memory  |-----|-------------|
    /// ranges  |-----|--|---|------|
    /// ```
    ///
    /// The next runs of the file that HDF5 has already returned become ranges without a comparison, while
    /// they fit into the rest of the memory's run.
    fn walk<S: Source>(
        &self,
        mut file: Cursor<'_, S>,
        mut memory: Cursor<'_, S>,
        bytes: u64,
        batch: &mut Vec<Extent>,
        act: &mut dyn FnMut(&[Extent]) -> Result<()>,
    ) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let (from, to) = (file.run()?, memory.run()?);
            let length = from.length.min(to.length);
            let next = self.range(from.start, to.start, length);
            match batch.last_mut() {
                Some(last)
                    if last.offset + last.length == next.offset
                        && last.memory + last.length as usize == next.memory =>
                {
                    last.length += length;
                }
                _ => batch.push(next),
            }
            file.skip(length);
            memory.skip(length);
            left = left.saturating_sub(length);
            if file.rest.length == 0 && memory.rest.length > 0 {
                let to = memory.rest;
                let room = FEW.saturating_sub(batch.len() + 1);
                let mut taken = 0;
                batch.extend(file.take_while_within(to.length, room).map(|run| {
                    let range = self.range(run.start, to.start + taken, run.length);
                    taken += run.length;
                    range
                }));
                memory.skip(taken);
                left = left.saturating_sub(taken);
            }
            let is_enough = match batch.len() {
                FEW => Survey::of(&batch[..SAMPLE]).follow_each_other,
                length => length == BATCH,
            };
            if is_enough {
                act(batch)?;
                batch.clear();
            }
        }
        Ok(())
    }

    /// Returns the range that begins at these bytes of both dataspaces.
    #[inline]
    fn range(&self, in_file: u64, in_memory: u64, length: u64) -> Extent {
        Extent {
            offset: self.offset + in_file,
            length,
            memory: self.memory + in_memory as usize,
        }
    }
}

fn unreadable() -> Error {
    Error::invalid("HDF5 does not return the selection")
}

fn differ() -> Error {
    Error::invalid("the selections in the file and in memory differ in size")
}

/// A range of bytes of a dataspace, relative to its first element.
#[derive(Clone, Copy, Default)]
struct Run {
    start: u64,
    length: u64,
}

/// A position in the bytes of one side of a selection.
struct Cursor<'a, S> {
    /// Returns the runs after the fetched ones; `None` if there are none.
    source: Option<S>,
    element_size: u64,
    fetched: &'a mut Fetched,
    /// What follows of the current run.
    rest: Run,
}

impl<S: Source> Cursor<'_, S> {
    /// Returns the bytes that follow in one run. Fails at the end.
    #[inline]
    fn run(&mut self) -> Result<Run> {
        if self.rest.length == 0 {
            let fetched = &mut *self.fetched;
            if fetched.next == fetched.count {
                fetched.next = 0;
                self.source.as_mut().ok_or_else(differ)?.fetch(fetched)?;
            }
            if fetched.count == 0 {
                return Err(differ());
            }
            self.rest = fetched.run(fetched.next, self.element_size);
            fetched.next += 1;
        }
        Ok(self.rest)
    }

    /// Advances in the current run.
    #[inline]
    fn skip(&mut self, bytes: u64) {
        self.rest.start += bytes;
        self.rest.length -= bytes;
    }

    /// Takes fetched runs after the current one, at most `count`, while they fit into `bytes` of
    /// contiguous memory.
    #[inline]
    fn take_while_within(&mut self, bytes: u64, count: usize) -> impl Iterator<Item = Run> {
        let (fetched, size) = (&mut *self.fetched, self.element_size);
        let first = fetched.next;
        let last = fetched.count.min(first.saturating_add(count));
        let mut left = bytes;
        let mut fits = |index: &usize| {
            let length = fetched.run(*index, size).length;
            let fits = length <= left;
            left = left.wrapping_sub(length);
            fits
        };
        let end = if fetched.elements as u64 * size <= bytes {
            last
        } else {
            (first..last).find(|index| !fits(index)).unwrap_or(last)
        };
        fetched.next = end;
        (first..end).map(move |index| fetched.run(index, size))
    }
}

/// The runs of a selection, in its order.
///
/// # Safety
/// `fetch` fills in as many runs as it counts.
unsafe trait Source {
    /// Returns the next runs; none at the end.
    fn fetch(&mut self, to: &mut Fetched) -> Result<()>;
}

const FETCHED: usize = 128;

/// Runs as HDF5 returns them, in elements.
struct Fetched {
    starts: [MaybeUninit<hsize_t>; FETCHED],
    lengths: [MaybeUninit<usize>; FETCHED],
    /// Number of runs.
    count: usize,
    /// Number of elements of all of them.
    elements: usize,
    /// Index of the first run that was not taken.
    next: usize,
}

impl Fetched {
    fn new() -> Fetched {
        Fetched {
            starts: [const { MaybeUninit::uninit() }; FETCHED],
            lengths: [const { MaybeUninit::uninit() }; FETCHED],
            count: 0,
            elements: 0,
            next: 0,
        }
    }

    /// Returns a run in bytes.
    #[inline]
    fn run(&self, index: usize, element_size: u64) -> Run {
        assert!(index < self.count && self.count <= FETCHED);
        // SAFETY: the source has filled in as many as it has counted.
        unsafe {
            Run {
                start: self.starts[index].assume_init() * element_size,
                length: self.lengths[index].assume_init() as u64 * element_size,
            }
        }
    }
}

/// An iterator of HDF5 over a selection. Dropping it returns it to the pool, which requires HDF5's lock.
struct SelectionIterator<'a> {
    pool: &'a Iterators,
    id: hid_t,
}

// SAFETY: HDF5 fills in as many runs as it counts.
unsafe impl Source for SelectionIterator<'_> {
    #[inline]
    fn fetch(&mut self, to: &mut Fetched) -> Result<()> {
        // SAFETY: the arrays have the lengths passed; the lock is held, as `take` requires.
        let status = unsafe {
            (self.pool.hdf5.H5Ssel_iter_get_seq_list)(
                self.id,
                FETCHED,
                usize::MAX,
                &mut to.count,
                &mut to.elements,
                to.starts.as_mut_ptr().cast(),
                to.lengths.as_mut_ptr().cast(),
            )
        };
        if status < 0 {
            return Err(unreadable());
        }
        Ok(())
    }
}

impl Drop for SelectionIterator<'_> {
    fn drop(&mut self) {
        let takes = |place: &AtomicI64| {
            let put = place.compare_exchange(NONE, self.id, AcqRel, Relaxed);
            put.is_ok()
        };
        if !self.pool.waiting.iter().any(takes) {
            self.pool.close_iterator(self.id);
        }
    }
}

/// A pool of HDF5's selection iterators. Creating and closing an iterator takes as long as all
/// other calls of HDF5 for a selection.
pub(crate) struct Iterators {
    hdf5: &'static Hdf5,
    waiting: [AtomicI64; 2],
}

impl Iterators {
    pub(crate) fn new(hdf5: &'static Hdf5) -> Iterators {
        Iterators {
            hdf5,
            waiting: [const { AtomicI64::new(NONE) }; 2],
        }
    }

    /// Returns an iterator that counts in elements of a dataspace.
    ///
    /// # Safety
    /// `space` is a dataspace of the iterators' HDF5, whose lock is held as long as the result lives.
    unsafe fn take(&self, space: hid_t) -> Result<SelectionIterator<'_>> {
        // The iterator only reads the selection, which does not change during the call.
        const SHARE_WITH_DATASPACE: c_uint = 2;
        let waits = self.waiting.iter().find_map(from_place);
        // SAFETY: upheld by the caller.
        let id = waits.unwrap_or_else(|| unsafe {
            (self.hdf5.H5Ssel_iter_create)(space, 1, SHARE_WITH_DATASPACE)
        });
        if id < 0 {
            return Err(unreadable());
        }
        // SAFETY: upheld by the caller.
        if waits.is_some() && unsafe { (self.hdf5.H5Ssel_iter_reset)(id, space) } < 0 {
            self.close_iterator(id);
            return Err(unreadable());
        }
        Ok(SelectionIterator { pool: self, id })
    }

    /// Closes the iterators. The caller holds HDF5's lock.
    pub(crate) fn close(&self) {
        let waiting = self.waiting.iter().filter_map(from_place);
        waiting.for_each(|id| self.close_iterator(id));
    }

    /// Closes an iterator of this pool. The caller holds HDF5's lock.
    fn close_iterator(&self, id: hid_t) {
        // At its own end, HDF5 may close iterators before files.
        // SAFETY: HDF5 checks the identifier, which nothing else closes; the lock is held.
        unsafe {
            if (self.hdf5.H5Iis_valid)(id) > 0 {
                (self.hdf5.H5Ssel_iter_close)(id);
            }
        }
    }
}

/// Takes the iterator out of a slot of the pool, if it has one.
fn from_place(place: &AtomicI64) -> Option<hid_t> {
    Some(place.swap(NONE, AcqRel)).filter(|id| *id != NONE)
}

const NONE: hid_t = -1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of one side in elements, of which each fetch returns a few.
    struct Runs {
        runs: Vec<(u64, usize)>,
        at_once: usize,
    }

    // SAFETY: as many runs are filled in as are counted.
    unsafe impl Source for Runs {
        fn fetch(&mut self, to: &mut Fetched) -> Result<()> {
            to.count = self.at_once.min(self.runs.len());
            to.elements = 0;
            for (index, (start, length)) in self.runs.drain(..to.count).enumerate() {
                to.starts[index].write(start);
                to.lengths[index].write(length);
                to.elements += length;
            }
            Ok(())
        }
    }

    /// Random numbers below a limit, by xorshift.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % limit
        }

        /// Runs with gaps of 0 to 2 elements: `elements` in total, each run at most `longest`.
        fn runs(&mut self, elements: usize, longest: u64) -> Vec<(u64, usize)> {
            let (mut runs, mut left, mut at) = (Vec::new(), elements, 0);
            while left > 0 {
                let length = (1 + self.below(longest) as usize).min(left);
                let start = at + self.below(3);
                runs.push((start, length));
                (at, left) = (start + length as u64, left - length);
            }
            // The order of a selection need not be that of the addresses.
            if self.below(3) == 0 {
                runs.reverse();
            }
            runs
        }
    }

    /// The addresses of all bytes, in the order of the runs.
    fn bytes_of(runs: &[(u64, usize)], base: u64, size: u64) -> Vec<u64> {
        let bytes = runs
            .iter()
            .flat_map(|(start, length)| start * size..(start + *length as u64) * size);
        bytes.map(|byte| base + byte).collect()
    }

    /// Walks, and returns the file and memory address of each byte, and the number of batches.
    fn walk(
        pair: &Pair,
        [file, memory]: [Cursor<'_, Runs>; 2],
        bytes: u64,
    ) -> Result<(Vec<(u64, u64)>, usize)> {
        let (mut moved, mut batches) = (Vec::new(), 0);
        let mut act = |extents: &[Extent]| {
            let most = match extents.get(..SAMPLE) {
                Some(sample) if Survey::of(sample).follow_each_other => FEW,
                _ => BATCH,
            };
            assert!(extents.len() <= most && extents.iter().all(|extent| extent.length > 0));
            for extent in extents {
                let (from, to) = (extent.offset, extent.memory as u64);
                moved.extend((0..extent.length).map(|byte| (from + byte, to + byte)));
            }
            batches += 1;
            Ok(())
        };
        let mut last = Vec::new();
        pair.walk(file, memory, bytes, &mut last, &mut act)?;
        act(&last)?;
        Ok((moved, batches))
    }

    fn cursor(runs: Vec<(u64, usize)>, at_once: usize, fetched: &mut Fetched) -> Cursor<'_, Runs> {
        Cursor {
            source: Some(Runs { runs, at_once }),
            element_size: 4,
            fetched,
            rest: Run::default(),
        }
    }

    const PAIR: Pair = Pair {
        file_space: 0,
        memory_space: 0,
        offset: 1000,
        memory: 70_000,
        element_size: 4,
    };

    #[test]
    fn a_walk_moves_the_same_bytes_as_a_walk_byte_by_byte() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut most = 0;
        for case in 0..300 {
            let elements = 1 + random.below(if case % 10 == 0 { 20_000 } else { 600 }) as usize;
            let [longest_in_file, longest_in_memory] = [(); 2].map(|()| 1 << random.below(12));
            let in_file = random.runs(elements, longest_in_file);
            let in_memory = random.runs(elements, longest_in_memory);
            let expected: Vec<_> = bytes_of(&in_file, 1000, 4)
                .into_iter()
                .zip(bytes_of(&in_memory, 70_000, 4))
                .collect();
            let at_once = [(); 2].map(|()| 1 + random.below(FETCHED as u64) as usize);
            let (mut from, mut to) = (Fetched::new(), Fetched::new());
            let sides = [
                cursor(in_file, at_once[0], &mut from),
                cursor(in_memory, at_once[1], &mut to),
            ];
            let (moved, batches) = walk(&PAIR, sides, 4 * elements as u64).unwrap();
            assert!(moved == expected, "case {case}");
            most = most.max(batches);
        }
        assert!(most > 1, "no case has several batches");
    }

    #[test]
    fn a_side_that_is_one_run_needs_no_source() {
        let (mut from, mut to) = (Fetched::new(), Fetched::new());
        let whole = Cursor {
            source: None,
            element_size: 4,
            fetched: &mut to,
            rest: Run {
                start: 0,
                length: 20,
            },
        };
        let file = cursor(vec![(5, 2), (9, 3)], FETCHED, &mut from);
        let (moved, _) = walk(&PAIR, [file, whole], 20).unwrap();
        let expected = bytes_of(&[(5, 2), (9, 3)], 1000, 4)
            .into_iter()
            .zip(70_000..);
        assert!(moved.into_iter().eq(expected));
    }

    #[test]
    fn a_side_that_ends_early_is_an_error() {
        for lengths in [[3, 5], [5, 3]] {
            let (mut from, mut to) = (Fetched::new(), Fetched::new());
            let [file, memory] = lengths.map(|length| vec![(0, length)]);
            let sides = [cursor(file, 1, &mut from), cursor(memory, 1, &mut to)];
            let error = walk(&PAIR, sides, 20).unwrap_err();
            assert_eq!(error.cause(), differ().cause());
        }
    }
}
