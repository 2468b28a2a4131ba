//! Ranges that are near each other in the file, though not in memory, moved by one system call.

use super::Work;
use crate::error::Result;
use crate::file::position::Operation;
use crate::plan::Extent;

/// Up to this many bytes between two ranges, reading them takes less time than a second system
/// call.
const GAP: u64 = 4 << 10;

/// The most vectors of one system call: IOV_MAX of Linux.
const MAX_VECTORS: usize = 1024;

/// Moves ranges through the page cache. A worker keeps one for its memory.
#[derive(Default)]
pub(crate) struct NearRanges {
    vector: Vec<libc::iovec>,
    /// The destination of the bytes between ranges.
    between: Vec<u8>,
}

impl NearRanges {
    /// Moves ranges on this thread: by one system call as many as are near each other, if they are in
    /// the order of the file.
    ///
    /// # Safety
    /// The memory of each range is on the host and valid, writable for a read, and no other code
    /// touches it until the call returns. Ranges do not overlap in memory.
    pub(crate) unsafe fn transfer(&mut self, work: &Work<'_>, ranges: &[Extent]) -> Result<()> {
        // A gate decides about each range by itself, and so does a worker that has mappings.
        let has_mappings = work.mappings.is_some_and(|mappings| !mappings.is_empty());
        let most = if work.gate.is_some() || has_mappings {
            1
        } else {
            MAX_VECTORS / 2
        };
        let mut rest = ranges;
        while !rest.is_empty() {
            let near = rest
                .windows(2)
                .take_while(|two| is_near(work.operation, two));
            let run = 1 + near.take(most - 1).count();
            let (now, later) = rest.split_at(run);
            // SAFETY: passed on.
            let end = unsafe { self.try_together(work, now) };
            // After a short or failed call, the rest moves range by range, which finds the cause.
            for range in now {
                let done = end.saturating_sub(range.offset).min(range.length);
                if done < range.length {
                    let memory = (range.memory + done as usize) as *mut u8;
                    // SAFETY: passed on.
                    unsafe {
                        work.move_buffered(memory, range.offset + done, range.length - done)?
                    };
                }
            }
            rest = later;
        }
        Ok(())
    }

    /// Moves a run by one system call, and returns the file offset up to which it has moved. A single
    /// range is not moved.
    ///
    /// # Safety
    /// As for [`transfer`](Self::transfer).
    unsafe fn try_together(&mut self, work: &Work<'_>, run: &[Extent]) -> u64 {
        let start = run[0].offset;
        if run.len() == 1 {
            return start;
        }
        self.between.resize(GAP as usize, 0);
        self.vector.clear();
        let mut at = start;
        for range in run {
            if range.offset > at {
                self.vector.push(libc::iovec {
                    iov_base: self.between.as_mut_ptr().cast(),
                    iov_len: (range.offset - at) as usize,
                });
            }
            self.vector.push(libc::iovec {
                iov_base: range.memory as *mut libc::c_void,
                iov_len: range.length as usize,
            });
            at = range.end();
        }
        work.counters.io_call();
        let fd = work.buffered_fd();
        let (vector, count) = (self.vector.as_ptr(), self.vector.len() as libc::c_int);
        // SAFETY: the vectors describe memory that the caller vouches for, and `between`, which is as
        // long as the longest gap.
        let moved = unsafe {
            match work.operation {
                Operation::Read => libc::preadv(fd, vector, count, start as libc::off_t),
                Operation::Write => libc::pwritev(fd, vector, count, start as libc::off_t),
            }
        };
        start + u64::try_from(moved).unwrap_or(0)
    }
}

/// Whether one system call moves both ranges and what is between them.
fn is_near(operation: Operation, two: &[Extent]) -> bool {
    let gap = two[1].offset.checked_sub(two[0].end());
    gap.is_some_and(|gap| gap == 0 || operation == Operation::Read && gap <= GAP)
}
