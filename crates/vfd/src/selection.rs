//! Converts the selections of file and memory that HDF5 passes to the driver as dataspaces to
//! ranges.

use std::cell::Cell;
use std::ffi::c_uint;
use std::mem::MaybeUninit;

use penstock_engine::Extent;
use penstock_engine::error::{Error, Result};
use penstock_sys::hdf5::{Hdf5, haddr_t, hid_t, hsize_t};

use crate::survey::Survey;

/// A selection in the file and the matching one in memory, whose elements correspond in order.
pub(crate) struct Pair {
    pub file_space: hid_t,
    pub memory_space: hid_t,
    /// File address of the first element of the file dataspace.
    pub offset: haddr_t,
    /// Memory address of the first element of the memory dataspace.
    pub memory: usize,
    pub element_size: usize,
}

/// Number of ranges passed on at a time; they take some megabytes.
const BATCH: usize = 1 << 16;

/// Number of ranges at which fewer are passed on if they are to be moved one after the other; they
/// stay in the processor's cache.
const FEW: usize = 1 << 11;

/// Number of them that tell what the rest is like.
const SAMPLE: usize = 64;

thread_local! {
    /// The memory of the ranges, for the next selection: most have one range.
    static RANGES: Cell<Vec<Extent>> = const { Cell::new(Vec::new()) };
}

impl Pair {
    /// Calls `act` with the ranges of the selection, in batches.
    ///
    /// # Safety
    /// The spaces are dataspaces of `hdf5`, whose lock is held.
    pub(crate) unsafe fn each(
        &self,
        hdf5: &Hdf5,
        act: &mut dyn FnMut(&[Extent]) -> Result<()>,
    ) -> Result<()> {
        let (mut in_file, mut in_memory) = (Fetched::new(), Fetched::new());
        // SAFETY: upheld by the caller.
        let (mut file, mut memory) = unsafe {
            let size = self.element_size;
            (
                Sequences::of(hdf5, self.file_space, size, &mut in_file)?,
                Sequences::of(hdf5, self.memory_space, size, &mut in_memory)?,
            )
        };
        // HDF5 also closes files when the thread ends, after its thread-local memory is gone.
        let mut batch = RANGES.try_with(Cell::take).unwrap_or_default();
        batch.clear();
        let (mut from, mut to) = (Run::default(), Run::default());
        loop {
            if from.length == 0 {
                match file.next()? {
                    Some(next) => from = next,
                    // HDF5 has compared the sizes, so it need not be asked for an end in memory too.
                    None if to.length == 0 && memory.next == memory.fetched => break,
                    None => return Err(differ()),
                }
            }
            if to.length == 0 {
                to = memory.next()?.ok_or_else(differ)?;
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
            if from.length == 0 {
                let room = FEW.saturating_sub(batch.len() + 1);
                for run in file.take_while_within(to.length, room) {
                    batch.push(Extent {
                        offset: self.offset + run.start,
                        length: run.length,
                        memory: self.memory + to.start as usize,
                    });
                    to.skip(run.length);
                }
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

fn differ() -> Error {
    Error::invalid("the selections in the file and in memory differ in size")
}

/// A range of bytes of a dataspace, counted from its first element.
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

/// The byte ranges that a dataspace selects, in its order.
struct Sequences<'a> {
    hdf5: &'a Hdf5,
    iterator: hid_t,
    runs: &'a mut Fetched,
    fetched: usize,
    next: usize,
}

impl<'a> Sequences<'a> {
    /// # Safety
    /// `space` is a dataspace of `hdf5`, whose lock is held as long as the result lives.
    unsafe fn of(
        hdf5: &'a Hdf5,
        space: hid_t,
        element_size: usize,
        runs: &'a mut Fetched,
    ) -> Result<Self> {
        // The iterator only reads the selection, which does not change meanwhile.
        const SHARE_WITH_DATASPACE: c_uint = 2;
        // SAFETY: the caller guarantees it.
        let iterator =
            unsafe { (hdf5.H5Ssel_iter_create)(space, element_size, SHARE_WITH_DATASPACE) };
        if iterator < 0 {
            return Err(Error::invalid("HDF5 does not return the selection"));
        }
        Ok(Sequences {
            hdf5,
            iterator,
            runs,
            fetched: 0,
            next: 0,
        })
    }

    /// Takes ranges that HDF5 has returned already, at most `count`, as long as they fit into `bytes`
    /// of memory that follow each other.
    #[inline]
    fn take_while_within(&mut self, bytes: u64, count: usize) -> impl Iterator<Item = Run> {
        let mut left = bytes;
        let first = self.next;
        let end = self.fetched.min(first.saturating_add(count));
        while self.next < end {
            let length = self.run(self.next).length;
            if length > left {
                break;
            }
            left -= length;
            self.next += 1;
        }
        (first..self.next).map(|index| self.run(index))
    }

    /// Returns one of the fetched ranges.
    #[inline]
    fn run(&self, index: usize) -> Run {
        assert!(index < self.fetched && self.fetched <= FETCHED);
        // SAFETY: HDF5 has filled in as many as it has said.
        unsafe {
            Run {
                start: self.runs.starts[index].assume_init(),
                length: self.runs.lengths[index].assume_init() as u64,
            }
        }
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Run>> {
        if self.next == self.fetched {
            let mut elements = 0usize;
            self.next = 0;
            // SAFETY: the arrays have the lengths passed; the lock is held, as `of` requires.
            let status = unsafe {
                (self.hdf5.H5Ssel_iter_get_seq_list)(
                    self.iterator,
                    FETCHED,
                    usize::MAX,
                    &mut self.fetched,
                    &mut elements,
                    self.runs.starts.as_mut_ptr().cast(),
                    self.runs.lengths.as_mut_ptr().cast(),
                )
            };
            if status < 0 {
                return Err(Error::invalid("HDF5 does not return the selection"));
            }
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
        // SAFETY: made by `of`; the lock is still held.
        unsafe { (self.hdf5.H5Ssel_iter_close)(self.iterator) };
    }
}
