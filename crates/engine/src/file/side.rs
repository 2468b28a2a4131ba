//! The file's side of a request: reads and writes of host memory, buffered or by O_DIRECT.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::File;
use super::position::{self, Gate, Operation, Stop};
use crate::error::{Error, Result};
use crate::report::Counters;

/// Whether a request uses O_DIRECT, which bypasses the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    /// All bytes go through the page cache.
    Never,
    /// Reads of blocks that are not cached bypass it.
    WhereCold,
    /// All bytes bypass it, except where the system refuses a call.
    Preferred,
    /// All bytes bypass it. A refusal is an error, since the caller requested O_DIRECT.
    Always,
}

/// One file of a request, with the mode and the counters of its transfers.
#[derive(Clone, Copy)]
pub struct FileSide<'a> {
    /// The open file.
    pub file: &'a Arc<File>,
    /// The direction.
    pub operation: Operation,
    /// Whether the page cache is bypassed.
    pub direct: Direct,
    /// The request's counters.
    pub counters: &'a Counters,
    /// The gate that decides about each system call; `None` lets all pass.
    pub gate: Option<&'a dyn Gate>,
    /// The worker's own descriptor of the file, if it has one.
    pub descriptor: Option<RawFd>,
}

impl<'a> FileSide<'a> {
    /// A side that goes through the page cache, and has no gate.
    pub fn new(file: &'a Arc<File>, operation: Operation, counters: &'a Counters) -> FileSide<'a> {
        FileSide {
            file,
            operation,
            direct: Direct::Never,
            counters,
            gate: None,
            descriptor: None,
        }
    }

    /// The descriptor that uses the page cache.
    pub(crate) fn buffered_fd(&self) -> RawFd {
        self.descriptor.unwrap_or(self.file.buffered_fd())
    }

    /// Whether a range should bypass the page cache.
    pub fn goes_direct(&self, offset: u64, length: u64) -> bool {
        match self.direct {
            Direct::Always | Direct::Preferred => true,
            Direct::Never => false,
            Direct::WhereCold => {
                let cached = self.file.residency(offset, length);
                cached.is_some_and(|share| share < 0.5)
            }
        }
    }

    /// The error of a system call that failed at a range of the file.
    pub fn failed(&self, error: &io::Error, offset: u64, length: u64) -> Error {
        let action = match self.operation {
            Operation::Read => "cannot read",
            Operation::Write => "cannot write",
        };
        Error::os(error, action).at(self.file.path(), offset, length)
    }

    /// The error of a range that reaches beyond the end of the file.
    pub fn ended(&self, offset: u64, length: u64) -> Error {
        let size = self.file.size().unwrap_or(0);
        Error::end_of_file(offset + length, size).at(self.file.path(), offset, length)
    }

    /// Moves a range through the page cache, on this thread.
    ///
    /// # Safety
    /// `buffer` is valid for `length` bytes of host memory, writable for a read, which no other
    /// code touches until the call returns.
    pub unsafe fn move_buffered(&self, buffer: *mut u8, offset: u64, length: u64) -> Result<()> {
        self.counters.io_call();
        let fd = self.buffered_fd();
        // SAFETY: the caller vouches for the buffer.
        let (_, stop) =
            unsafe { position::transfer(self.gate, fd, self.operation, buffer, length, offset) };
        match stop {
            None => Ok(()),
            Some(Stop::End) => Err(self.ended(offset, length)),
            Some(Stop::Failed(e)) => Err(self.failed(&e, offset, length)),
        }
    }

    /// Reads a range on this thread, if the page cache has all of it, without waiting for a medium.
    /// Otherwise returns false, with an unknown part of the buffer changed.
    ///
    /// # Safety
    /// As for [`move_buffered`](Self::move_buffered).
    pub unsafe fn read_cached(&self, buffer: *mut u8, offset: u64, length: u64) -> bool {
        self.counters.io_call();
        // SAFETY: passed on.
        unsafe { self.file.read_cached(buffer, offset, length) }
    }

    /// Moves a range by O_DIRECT, on this thread. Returns whether all bytes bypassed the page cache.
    ///
    /// Offset, length and address are aligned. A read needs only the first `needed` bytes, and the
    /// file may end behind them. The unaligned end of a file goes through the page cache. So does
    /// the whole range where the system refuses O_DIRECT, unless the caller requested it.
    ///
    /// # Safety
    /// As for [`move_buffered`](Self::move_buffered).
    pub unsafe fn move_direct(
        &self,
        buffer: *mut u8,
        offset: u64,
        length: u64,
        needed: u64,
    ) -> Result<bool> {
        let Some(fd) = self.file.direct_fd() else {
            // SAFETY: passed on.
            unsafe { self.move_buffered(buffer, offset, needed)? };
            return Ok(false);
        };
        self.counters.io_call();
        // SAFETY: the caller vouches for the buffer.
        let (moved, stop) =
            unsafe { position::transfer(self.gate, fd, self.operation, buffer, length, offset) };
        if moved >= needed {
            return Ok(true);
        }
        match stop {
            Some(Stop::Failed(e))
                if self.may_fall_back(&e)
                    || (e.raw_os_error() == Some(libc::EINVAL)
                        && !moved.is_multiple_of(self.file.direct_alignment())) =>
            {
                // SAFETY: the rest of the same buffer.
                unsafe {
                    self.move_buffered(buffer.add(moved as usize), offset + moved, needed - moved)?;
                }
                Ok(false)
            }
            Some(Stop::Failed(e)) => Err(self.failed(&e, offset, needed)),
            _ => Err(self.ended(offset, needed)),
        }
    }

    /// Whether the page cache may replace an O_DIRECT call that failed with this error.
    pub(crate) fn may_fall_back(&self, error: &io::Error) -> bool {
        self.direct != Direct::Always
            && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
    }
}
