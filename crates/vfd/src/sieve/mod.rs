//! Joins small accesses to raw data in host memory to larger ones, as HDF5's sieve buffer does for
//! its own drivers ([decision
//! 13](../../../../docs/decisions/0013-the-driver-sieves-host-memory.md)).
//!
//! A [`Sieve`] holds up to 16 [`Block`]s of a file. It keeps them between two calls of the driver
//! for at most [`MAX_AGE`], and only while the file's lock prevents changes by other processes.
//! Every other access of this process goes through the driver, which calls [`Sieve::before`], or
//! through the engine, which counts its requests.

mod behind;
mod block;
mod trails;

use std::ffi::c_int;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use penstock_engine::Recover;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::{self, Operation, Stop};
use penstock_engine::file::unchanged::MAX_AGE;
use penstock_engine::{Extent, files_unchanged_since};

pub(crate) use behind::is_forked;
use block::{BLOCK, Block};
pub(crate) use trails::NEAR;
use trails::Trails;

/// Longest access that goes through blocks.
pub(crate) const SMALL: u64 = 8 << 10;

/// Largest number of blocks of a file.
const BLOCKS: usize = 16;

/// A time and the engine's request count at that time.
#[derive(Clone, Copy, Default)]
struct Moment {
    milliseconds: i64,
    requests: u64,
}

impl Moment {
    /// Returns the present; `None` if the engine may be changing files.
    #[inline]
    fn now() -> Option<Moment> {
        let requests = files_unchanged_since()?;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // The coarse clock has a resolution of some milliseconds, and takes a tenth of the time of the precise one.
        // SAFETY: `time` is a place for the result.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
        Some(Moment {
            milliseconds: time.tv_sec * 1000 + time.tv_nsec / 1_000_000,
            requests,
        })
    }

    /// Returns whether a copy of the file made at this moment is still valid `now`.
    #[inline]
    fn reaches(&self, now: &Moment) -> bool {
        self.requests == now.requests
            && now.milliseconds - self.milliseconds <= MAX_AGE.as_millis() as i64
    }
}

/// Identifies one selection of a dataset or chunk. All bytes between two of its ranges belong to
/// the same storage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SelectionId(u64);

impl SelectionId {
    pub(crate) fn new() -> SelectionId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        SelectionId(NEXT.fetch_add(1, Relaxed))
    }
}

pub(crate) struct Sieve {
    descriptor: c_int,
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    blocks: Vec<Block>,
    /// Index of the block that was used last.
    last: usize,
    /// Number of uses of blocks, now and at the last visit of the background thread.
    uses: u64,
    uses_visited: u64,
    trails: Trails,
    /// Whether a background write has failed. The next call retries it and reports the error.
    has_failed: bool,
    /// Whether this file is registered with the background thread.
    is_listed: bool,
}

impl Sieve {
    pub(crate) fn new(descriptor: c_int, path: &FilePath) -> Arc<Sieve> {
        behind::register_fork_handlers();
        Arc::new(Sieve {
            descriptor,
            path: path.to_owned(),
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().recover();
        // The copied blocks belong to the parent, which writes them; a child keeps none between
        // calls.
        if is_forked() {
            state.blocks.clear();
        }
        state
    }

    /// Moves ranges one after the other, through blocks or by `directly`. `selection` identifies the
    /// selection of all ranges. With `keeps`, blocks stay for the next call. Also returns the
    /// counts of what went through blocks.
    ///
    /// # Safety
    /// The memory of each extent is valid host memory, writable for a read, and each range ends
    /// below the largest offset.
    pub(crate) unsafe fn run(
        self: &Arc<Self>,
        operation: Operation,
        extents: &[Extent],
        selection: Option<SelectionId>,
        keeps: bool,
        directly: &dyn Fn(&Extent) -> Result<()>,
    ) -> (Result<()>, Joined) {
        let mut state = self.lock();
        let mut call = Call {
            sieve: self,
            directly,
            operation,
            selection,
            now: Moment::now(),
            joined: Joined::default(),
        };
        let prepared = match operation {
            _ if !keeps || call.now.is_none() => state.evict(self),
            Operation::Write if state.has_failed => state.write_all(self),
            _ => Ok(()),
        };
        if prepared.is_err() {
            return (prepared, call.joined);
        }
        // SAFETY: upheld by the caller.
        let moved = unsafe { state.all(&mut call, extents) };
        let finished = if keeps {
            state.write_later(self)
        } else {
            // Writes all blocks even if a range has failed, because earlier ranges counted as
            // written.
            let written = state.write_all(self);
            state.drop_blocks();
            written
        };
        (moved.and(finished), call.joined)
    }

    /// Prepares for an access that does not go through the sieve.
    pub(crate) fn before(&self, operation: Operation, extents: &[Extent]) -> Result<()> {
        let mut state = self.lock();
        if state.blocks.is_empty() {
            return Ok(());
        }
        match operation {
            // Keeps the order of writes. If the blocks cannot be written, HDF5's own data is
            // written all the same, because it may fit; the next flush reports the error.
            Operation::Write if state.write_all(self).is_err() => {
                state.prepare_after_failure(self, extents)?
            }
            Operation::Write => {}
            Operation::Read => state.write_overlapping(self, extents)?,
        }
        if operation == Operation::Write {
            state.drop_overlapping(extents);
        }
        Ok(())
    }

    /// Writes all dirty blocks.
    pub(crate) fn write_out(&self) -> Result<()> {
        self.lock().write_all(self)
    }

    /// Writes all dirty blocks and drops all copies.
    pub(crate) fn evict(&self) -> Result<()> {
        self.lock().evict(self)
    }

    /// Drops all blocks before the descriptor is closed.
    pub(crate) fn close(&self) {
        self.lock().blocks.clear();
    }

    fn write(&self, block: &mut Block) -> Result<()> {
        let (offset, bytes) = block.to_write();
        let (buffer, length) = (bytes.as_ptr().cast_mut(), bytes.len() as u64);
        // SAFETY: the block's own memory, which a write only reads.
        let (done, stop) = unsafe {
            let operation = Operation::Write;
            position::transfer(None, self.descriptor, operation, buffer, length, offset)
        };
        match stop {
            None => block.is_written(),
            Some(stop) => {
                let error = match stop {
                    Stop::Failed(error) => error,
                    Stop::End => std::io::Error::from_raw_os_error(libc::EIO),
                };
                return Err(Error::os(&error, "cannot write").at(
                    &self.path,
                    offset + done,
                    length - done,
                ));
            }
        }
        Ok(())
    }
}

/// Counts of what went through blocks.
#[derive(Default)]
pub(crate) struct Joined {
    pub calls: u64,
    pub bytes: u64,
    /// Time in system calls that read, in nanoseconds.
    pub ns: u64,
}

/// One call of the driver.
struct Call<'a> {
    sieve: &'a Sieve,
    directly: &'a dyn Fn(&Extent) -> Result<()>,
    operation: Operation,
    selection: Option<SelectionId>,
    now: Option<Moment>,
    joined: Joined,
}

impl Call<'_> {
    /// Makes a range of a block known. Returns false on failure; the caller then reads the range
    /// directly.
    fn fill(&mut self, block: &mut Block, range: &Range<usize>, now: Moment) -> bool {
        let since = Instant::now();
        if block.is_unknown() {
            block.since = now;
        }
        let descriptor = self.sieve.descriptor;
        let filled = block.fill(range, |offset, bytes| {
            let (buffer, length) = (bytes.as_mut_ptr(), bytes.len() as u64);
            // SAFETY: the block's own memory.
            let (done, stop) = unsafe {
                position::transfer(None, descriptor, Operation::Read, buffer, length, offset)
            };
            match stop {
                None => Ok(()),
                // Reads past the end of the file as zeros.
                Some(Stop::End) => {
                    bytes[done as usize..].fill(0);
                    Ok(())
                }
                Some(Stop::Failed(_)) => Err(()),
            }
        });
        self.joined.ns += since.elapsed().as_nanos() as u64;
        filled.is_ok()
    }
}

impl State {
    /// # Safety
    /// As for [`Sieve::run`].
    unsafe fn all(&mut self, call: &mut Call<'_>, extents: &[Extent]) -> Result<()> {
        let mut left = extents;
        while let [first, rest @ ..] = left {
            // SAFETY: upheld by the caller.
            unsafe { self.one(call, first)? };
            left = rest;
            // The block may be too old if the first range was moved directly.
            let is_young =
                |block: &&mut Block| call.now.is_some_and(|now| block.since.reaches(&now));
            let Some(block) = self.blocks.get_mut(self.last).filter(is_young) else {
                continue;
            };
            // Later ranges in the same block need only a copy.
            // SAFETY: upheld by the caller.
            let (moved, bytes) = unsafe {
                match call.operation {
                    Operation::Read => block.copy_all(left),
                    Operation::Write => block.put_all(left, call.selection),
                }
            };
            call.joined.calls += moved as u64;
            call.joined.bytes += bytes;
            left = &left[moved..];
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Sieve::run`].
    #[inline]
    unsafe fn one(&mut self, call: &mut Call<'_>, extent: &Extent) -> Result<()> {
        let Some(now) = call.now.filter(|_| extent.length <= SMALL) else {
            if call.operation == Operation::Write {
                self.write_all(call.sieve)?;
                self.drop_overlapping(std::slice::from_ref(extent));
            } else {
                self.write_overlapping(call.sieve, std::slice::from_ref(extent))?;
            }
            return (call.directly)(extent);
        };
        let mut left = *extent;
        loop {
            let within = left.offset % BLOCK as u64;
            let length = left.length.min(BLOCK as u64 - within);
            let part = Extent { length, ..left };
            // SAFETY: upheld by the caller.
            let is_joined = unsafe {
                let range = within as usize..(within + length) as usize;
                match call.operation {
                    Operation::Read => self.read(call, now, &part, range)?,
                    Operation::Write => self.put(call, now, &part, range)?,
                }
            };
            if is_joined {
                call.joined.calls += 1;
                call.joined.bytes += length;
            } else {
                (call.directly)(&part)?
            }
            if length == left.length {
                return Ok(());
            }
            left.offset += length;
            left.memory += length as usize;
            left.length -= length;
        }
    }

    /// Reads within one block. Returns false if the caller must read the range directly.
    ///
    /// # Safety
    /// As for [`Sieve::run`].
    #[inline]
    unsafe fn read(
        &mut self,
        call: &mut Call<'_>,
        now: Moment,
        part: &Extent,
        range: Range<usize>,
    ) -> Result<bool> {
        let Some(at) = self.block_for(call, now, part, &range)? else {
            return Ok(false);
        };
        if !self.blocks[at].knows(&range) && !call.fill(&mut self.blocks[at], &range, now) {
            self.release(call.sieve, at)?;
            return Ok(false);
        }
        // SAFETY: the bytes are known; the caller guarantees the memory.
        unsafe { self.blocks[at].copy_to(range, part.memory as *mut u8) };
        self.blocks[at].is_used(call.selection);
        Ok(true)
    }

    /// Puts bytes into one block. Returns false if the caller must write the range directly.
    ///
    /// # Safety
    /// As for [`Sieve::run`].
    #[inline]
    unsafe fn put(
        &mut self,
        call: &mut Call<'_>,
        now: Moment,
        part: &Extent,
        range: Range<usize>,
    ) -> Result<bool> {
        let Some(at) = self.block_for(call, now, part, &range)? else {
            return Ok(false);
        };
        let block = &mut self.blocks[at];
        if !block.takes(&range, call.selection) {
            if !block.joins_dirty(&range, call.selection) {
                call.sieve.write(block)?;
            }
            // Only bytes between dirty bytes must be known.
            let is_joined =
                block.joins_known(&range) || (block.is_dirty() && call.fill(block, &range, now));
            if !is_joined {
                self.release(call.sieve, at)?;
                self.blocks[at].assign(Some(part.offset - range.start as u64));
            }
        }
        let block = &mut self.blocks[at];
        if block.is_unknown() {
            block.since = now;
        }
        // SAFETY: the block takes the range; the caller guarantees the memory.
        unsafe { block.put(range, part.memory as *const u8, call.selection) };
        if block.is_all_dirty() {
            call.sieve.write(block)?;
        }
        Ok(true)
    }

    /// Returns the block for a range; `None` if the range does not follow others.
    #[inline]
    fn block_for(
        &mut self,
        call: &Call<'_>,
        now: Moment,
        part: &Extent,
        range: &Range<usize>,
    ) -> Result<Option<usize>> {
        let start = part.offset - range.start as u64;
        if let Some(at) = self.find(start) {
            self.uses += 1;
            self.last = at;
            let block = &mut self.blocks[at];
            block.used = self.uses;
            if !block.since.reaches(&now) && !block.is_unknown() {
                self.release(call.sieve, at)?;
                self.blocks[at].assign(Some(start));
            }
            return Ok(Some(at));
        }
        let follows = self.trails.follows(part.offset, part.offset + part.length);
        let neighbour = self.neighbour(start, range);
        if !follows && neighbour.is_none() {
            return Ok(None);
        }
        let last = self.blocks.get(self.last);
        let left = if range.start == 0 || range.end == BLOCK {
            neighbour
        } else {
            last.is_some_and(|block| block.is_left_by(call.selection, start))
                .then_some(self.last)
        };
        self.take(call.sieve, start, left).map(Some)
    }

    #[inline]
    fn find(&self, start: u64) -> Option<usize> {
        let is_it = |block: &Block| block.start == Some(start);
        if self.blocks.get(self.last).is_some_and(is_it) {
            Some(self.last)
        } else {
            self.blocks.iter().position(is_it)
        }
    }

    /// Returns the previous block if the range begins close to its end, or the next block if the
    /// range ends close to its start.
    fn neighbour(&self, start: u64, range: &Range<usize>) -> Option<usize> {
        let before = start.checked_sub(BLOCK as u64);
        let before = before.filter(|_| range.start <= NEAR);
        let next = (range.end + NEAR >= BLOCK).then_some(start + BLOCK as u64);
        let before = before.and_then(|start| self.find(start));
        before.or_else(|| next.and_then(|start| self.find(start)))
    }

    /// Assigns a block to a part of the file. Prefers the block that these accesses have `left`,
    /// whose memory is in the processor's cache, then a new block, then the least recently used
    /// one.
    fn take(&mut self, sieve: &Sieve, start: u64, left: Option<usize>) -> Result<usize> {
        self.uses += 1;
        let is_free = |block: &Block| block.start.is_none();
        let at = match left.or_else(|| self.blocks.iter().position(is_free)) {
            Some(at) => at,
            None if self.blocks.len() < BLOCKS => {
                self.blocks.push(Block::new());
                self.blocks.len() - 1
            }
            None => {
                let used = |at: &usize| self.blocks[*at].used;
                (0..self.blocks.len()).min_by_key(used).unwrap_or(0)
            }
        };
        self.release(sieve, at)?;
        self.blocks[at].assign(Some(start));
        self.blocks[at].used = self.uses;
        self.last = at;
        Ok(at)
    }

    /// Writes the dirty bytes of a block and frees the block.
    fn release(&mut self, sieve: &Sieve, at: usize) -> Result<()> {
        let block = &mut self.blocks[at];
        if block.is_dirty() {
            sieve.write(block)?;
        }
        block.assign(None);
        Ok(())
    }

    /// Writes the dirty bytes of all blocks. Continues after a failure and returns the first error.
    fn write_all(&mut self, sieve: &Sieve) -> Result<()> {
        let dirty = self.blocks.iter_mut().filter(|block| block.is_dirty());
        let written = dirty
            .map(|block| sieve.write(block))
            .fold(Ok(()), Result::and);
        self.has_failed = written.is_err();
        written
    }

    fn write_overlapping(&mut self, sieve: &Sieve, extents: &[Extent]) -> Result<()> {
        let dirty = self.blocks.iter_mut().filter(|block| block.is_dirty());
        dirty
            .filter(|block| block.overlaps(extents))
            .try_for_each(|block| sieve.write(block))
    }

    fn drop_overlapping(&mut self, extents: &[Extent]) {
        let met = self
            .blocks
            .iter_mut()
            .filter(|block| block.overlaps(extents));
        met.filter(|block| !block.is_dirty())
            .for_each(|block| block.assign(None));
    }

    /// Prepares for a write of `extents` after dirty bytes could not be written. Their blocks
    /// forget all other bytes. Returns the error if the write covers dirty bytes.
    fn prepare_after_failure(&mut self, sieve: &Sieve, extents: &[Extent]) -> Result<()> {
        for block in self.blocks.iter_mut().filter(|block| block.is_dirty()) {
            let (start, bytes) = block.to_write();
            let end = start + bytes.len() as u64;
            let covers = |e: &Extent| e.offset < end && start < e.offset + e.length;
            if extents.iter().any(covers) {
                sieve.write(block)?
            } else {
                block.forget_clean()
            }
        }
        Ok(())
    }

    fn evict(&mut self, sieve: &Sieve) -> Result<()> {
        self.write_all(sieve)?;
        self.drop_blocks();
        Ok(())
    }

    /// Drops the contents of all blocks and keeps the memory of one, which suffices for most calls.
    fn drop_blocks(&mut self) {
        self.blocks.truncate(1);
        self.blocks.iter_mut().for_each(|block| {
            block.is_written();
            block.assign(None);
        });
    }

    /// Registers the sieve with the background thread if it has dirty blocks, or writes them now.
    fn write_later(&mut self, sieve: &Arc<Sieve>) -> Result<()> {
        if self.is_listed || !self.blocks.iter().any(Block::is_dirty) {
            return Ok(());
        }
        self.is_listed = behind::list(sieve);
        if self.is_listed {
            Ok(())
        } else {
            self.write_all(sieve)
        }
    }
}

impl Block {
    fn overlaps(&self, extents: &[Extent]) -> bool {
        let Some(start) = self.start else {
            return false;
        };
        let end = start + BLOCK as u64;
        let overlaps =
            |extent: &Extent| extent.offset < end && start < extent.offset + extent.length;
        extents.iter().any(overlaps)
    }
}
