//! The file's side of a request: which file, which way, and what is counted.

use std::io;
use std::sync::Arc;

use super::File;
use super::position::{self, Gate, Operation, Stop};
use super::residency::residency;
use crate::error::{Error, Result};
use crate::report::Counters;

/// Whether the bytes of a request go past the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    Never,
    /// Reads of blocks that are not cached.
    WhereCold,
    /// All, but a system that refuses after all may use the page cache.
    Preferred,
    /// All: the caller insists.
    Always,
}

#[derive(Clone, Copy)]
pub struct FileSide<'a> {
    pub file: &'a Arc<File>,
    pub operation: Operation,
    pub direct: Direct,
    pub counters: &'a Counters,
    pub gate: Option<&'a dyn Gate>,
}

impl FileSide<'_> {
    /// Whether a range should go past the page cache.
    pub fn goes_direct(&self, offset: u64, length: u64) -> bool {
        match self.direct {
            Direct::Always | Direct::Preferred => true,
            Direct::Never => false,
            Direct::WhereCold => {
                let fd = self.file.buffered_fd();
                residency(fd, offset, length).is_some_and(|share| share < 0.5)
            }
        }
    }

    /// An error of the file at a range.
    pub fn failed(&self, error: &io::Error, offset: u64, length: u64) -> Error {
        let action = match self.operation {
            Operation::Read => "cannot read",
            Operation::Write => "cannot write",
        };
        Error::os(error, action).at(self.file.path(), offset, length)
    }

    /// The file turned out to end inside the range.
    pub fn ended(&self, offset: u64, length: u64) -> Error {
        let size = self.file.size().unwrap_or(0);
        Error::end_of_file(offset + length, size).at(self.file.path(), offset, length)
    }

    /// Moves a range through the page cache.
    ///
    /// # Safety
    /// `buffer` is valid for `length` bytes of memory that the CPU reaches, not touched
    /// otherwise meanwhile.
    pub unsafe fn move_buffered(&self, buffer: *mut u8, offset: u64, length: u64) -> Result<()> {
        self.counters.io_call();
        let fd = self.file.buffered_fd();
        // SAFETY: the caller vouches for the buffer.
        let (_, stop) =
            unsafe { position::transfer(self.gate, fd, self.operation, buffer, length, offset) };
        match stop {
            None => Ok(()),
            Some(Stop::End) => Err(self.ended(offset, length)),
            Some(Stop::Failed(e)) => Err(self.failed(&e, offset, length)),
        }
    }

    /// Moves a range past the page cache. Offset, length and address are aligned; a read needs
    /// only the first `needed` bytes and may find the end of the file behind them. What O_DIRECT
    /// cannot do (the last, ragged piece of a file; anything, on a system that changed its mind)
    /// goes through the page cache. Returns whether all went direct.
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

    /// Whether a failed direct call means "not this way", so that the page cache may serve.
    pub(crate) fn may_fall_back(&self, error: &io::Error) -> bool {
        self.direct != Direct::Always
            && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
    }
}
