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
        let mut left = u64::try_from(elements).map_err(|_| unreadable())?;
        left = left.saturating_mul(self.element_size as u64);
        let (mut in_file, mut in_memory) = (Fetched::new(), Fetched::new());
        let of = |space, runs| {
            // SAFETY: upheld by the caller.
            unsafe { Sequences::of(iterators, space, self.element_size as u64, runs) }
        };
        let mut file = of(self.file_space, &mut in_file)?;
        // A whole array is one range, for which HDF5 need not be called.
        let (mut to, mut memory) = match kind {
            H5S_SEL_ALL => (
                Run {
                    start: 0,
                    length: left,
                },
                None,
            ),
            _ => (Run::default(), Some(of(self.memory_space, &mut in_memory)?)),
        };
        // HDF5 may close files at the end of a thread, when its thread-local memory no longer
        // exists.
        let mut batch = RANGES.try_with(Cell::take).unwrap_or_default();
        batch.clear();
        let mut from = Run::default();
        while left > 0 {
            if from.length == 0 {
                from = file.next()?.ok_or_else(differ)?;
            }
            if to.length == 0 {
                let next = memory.as_mut().and_then(|memory| memory.next().transpose());
                to = next.ok_or_else(differ)??;
            }
            let length = from.length.min(to.length);
            let next = Extent {
                offset: self.offset + from.start,
                length,
                memory: self.memory + to.start as usize,
            };
            match batch.last_mut() {
                Some(last)
                    if last.offset + last.length == next.offset
                        && last.memory + last.length as usize == next.memory =>
                {
                    last.length += length;
                }
                _ => batch.push(next),
            }
            from.skip(length);
            to.skip(length);
            left = left.saturating_sub(length);
            if from.length == 0 {
                let room = FEW.saturating_sub(batch.len() + 1);
                let (offset, memory) = (self.offset, self.memory + to.start as usize);
                let runs = file.take_while_within(to.length, room);
                let mut taken = 0;
                batch.extend(runs.map(|run| {
                    let extent = Extent {
                        offset: offset + run.start,
                        length: run.length,
                        memory: memory + taken as usize,
                    };
                    taken += run.length;
                    extent
                }));
                to.skip(taken);
                left = left.saturating_sub(taken);
            }
            let is_enough = match batch.len() {
                FEW => Survey::of(&batch[..SAMPLE]).follow_each_other,
                length => length == BATCH,
            };
            if is_enough {
                act(&batch)?;
                batch.clear();
            }
        }
        let acted = act(&batch);
        batch.shrink_to(FEW);
        let _ = RANGES.try_with(|ranges| ranges.set(batch));
        acted
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

impl Run {
    fn skip(&mut self, bytes: u64) {
        self.start += bytes;
        self.length -= bytes;
    }
}

const FETCHED: usize = 128;

/// Byte ranges as HDF5 returns them.
struct Fetched {
    starts: [MaybeUninit<hsize_t>; FETCHED],
    lengths: [MaybeUninit<usize>; FETCHED],
}

impl Fetched {
    fn new() -> Fetched {
        Fetched {
            starts: [const { MaybeUninit::uninit() }; FETCHED],
            lengths: [const { MaybeUninit::uninit() }; FETCHED],
        }
    }
}

/// An iterator of HDF5 over a selection. Dropping it closes it, which requires HDF5's lock.
struct SelectionIterator {
    hdf5: &'static Hdf5,
    id: hid_t,
}

impl Drop for SelectionIterator {
    fn drop(&mut self) {
        // At its own end, HDF5 may close iterators before files.
        // SAFETY: HDF5 checks the identifier, which nothing else closes; the lock is held.
        unsafe {
            if (self.hdf5.H5Iis_valid)(self.id) > 0 {
                (self.hdf5.H5Ssel_iter_close)(self.id);
            }
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
    unsafe fn take(&self, space: hid_t) -> Result<SelectionIterator> {
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
        let iterator = SelectionIterator {
            hdf5: self.hdf5,
            id,
        };
        // SAFETY: upheld by the caller.
        if waits.is_some() && unsafe { (self.hdf5.H5Ssel_iter_reset)(id, space) } < 0 {
            Err(unreadable())
        } else {
            Ok(iterator)
        }
    }

    fn put_back(&self, iterator: SelectionIterator) {
        let is_free = |place: &AtomicI64| {
            let put = place.compare_exchange(NONE, iterator.id, AcqRel, Relaxed);
            put.is_ok()
        };
        if self.waiting.iter().any(is_free) {
            std::mem::forget(iterator);
        }
    }

    /// Closes the iterators. The caller holds HDF5's lock.
    pub(crate) fn close(&self) {
        for id in self.waiting.iter().filter_map(from_place) {
            drop(SelectionIterator {
                hdf5: self.hdf5,
                id,
            });
        }
    }
}

/// Takes the iterator out of a slot of the pool, if it has one.
fn from_place(place: &AtomicI64) -> Option<hid_t> {
    Some(place.swap(NONE, AcqRel)).filter(|id| *id != NONE)
}

const NONE: hid_t = -1;

/// The byte ranges of a dataspace's selection, in its order.
struct Sequences<'a> {
    iterators: &'a Iterators,
    /// `None` only during drop.
    iterator: Option<SelectionIterator>,
    element_size: u64,
    runs: &'a mut Fetched,
    fetched: usize,
    fetched_bytes: u64,
    next: usize,
}

impl<'a> Sequences<'a> {
    /// # Safety
    /// `space` is a dataspace of the iterators' HDF5, whose lock is held as long as the result lives.
    unsafe fn of(
        iterators: &'a Iterators,
        space: hid_t,
        element_size: u64,
        runs: &'a mut Fetched,
    ) -> Result<Self> {
        Ok(Sequences {
            iterators,
            // SAFETY: upheld by the caller.
            iterator: Some(unsafe { iterators.take(space)? }),
            element_size,
            runs,
            fetched: 0,
            fetched_bytes: 0,
            next: 0,
        })
    }

    /// Takes ranges that HDF5 has already returned, at most `count`, while they fit into `bytes` of
    /// contiguous memory.
    #[inline]
    fn take_while_within(&mut self, bytes: u64, count: usize) -> impl Iterator<Item = Run> {
        let first = self.next;
        let last = self.fetched.min(first.saturating_add(count));
        let mut left = bytes;
        let mut fits = |index: &usize| {
            let length = self.run(*index).length;
            let fits = length <= left;
            left = left.wrapping_sub(length);
            fits
        };
        self.next = if self.fetched_bytes <= bytes {
            last
        } else {
            (first..last).find(|index| !fits(index)).unwrap_or(last)
        };
        (first..self.next).map(|index| self.run(index))
    }

    /// Returns one of the fetched ranges.
    #[inline]
    fn run(&self, index: usize) -> Run {
        assert!(index < self.fetched && self.fetched <= FETCHED);
        // SAFETY: HDF5 has filled in as many as it has said.
        unsafe {
            Run {
                start: self.runs.starts[index].assume_init() * self.element_size,
                length: self.runs.lengths[index].assume_init() as u64 * self.element_size,
            }
        }
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Run>> {
        if self.next == self.fetched {
            let iterator = self.iterator.as_ref().map_or(NONE, |iterator| iterator.id);
            let mut elements = 0usize;
            self.next = 0;
            // SAFETY: the arrays have the lengths passed; the lock is held, as `of` requires.
            let status = unsafe {
                (self.iterators.hdf5.H5Ssel_iter_get_seq_list)(
                    iterator,
                    FETCHED,
                    usize::MAX,
                    &mut self.fetched,
                    &mut elements,
                    self.runs.starts.as_mut_ptr().cast(),
                    self.runs.lengths.as_mut_ptr().cast(),
                )
            };
            if status < 0 {
                return Err(unreadable());
            }
            self.fetched_bytes = elements as u64 * self.element_size;
        }
        if self.fetched == 0 {
            return Ok(None);
        }
        let run = self.run(self.next);
        self.next += 1;
        Ok(Some(run))
    }
}

impl Drop for Sequences<'_> {
    fn drop(&mut self) {
        if let Some(iterator) = self.iterator.take() {
            self.iterators.put_back(iterator);
        }
    }
}
