//! Routes: the ways bytes travel between a file and memory. One room each; all pass the same
//! conformance suite, and a wrapper such as [`fault`] is a route too.

pub mod fault;
pub mod gds;
mod host;
mod mapped;
mod resident;
mod staged;
pub(crate) mod uring;

use std::io;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::file::File;
use crate::file::position::{self, Gate, Operation, Stop};
use crate::file::residency::residency;
use crate::memory::Memory;
use crate::options::RouteName;
use crate::plan::{Block, Plan, Span};
use crate::report::Counters;
use crate::staging::Ring;

pub(crate) use gds::Gds;
pub(crate) use host::Host;
pub(crate) use mapped::Mapped;
pub(crate) use resident::Resident;
pub(crate) use staged::Lent;
pub(crate) use staged::Staged;
pub(crate) use uring::{HostUring, StagedUring};

/// The routes keep nothing, so each exists once and may be borrowed for good.
pub(crate) static HOST: Host = Host;
pub(crate) static STAGED: Staged = Staged;

/// A way for bytes to travel. It is shared by all requests and keeps nothing of one.
pub(crate) trait Route: Send + Sync {
    fn name(&self) -> RouteName;

    /// What the data system calls of its work pass through.
    fn gate(&self) -> Option<&dyn Gate> {
        None
    }

    /// One worker's pass over a piece of work.
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>>;
}

/// One worker's pipeline. Dropping a lane, too, waits until nothing of it is under way.
pub(crate) trait Lane {
    /// Takes on a block. It may still be under way on return; an error may concern an earlier one.
    fn carry(&mut self, block: &Block) -> Result<()>;

    /// Waits until all blocks taken on are where they belong.
    fn drain(&mut self) -> Result<()>;
}

/// Whether the bytes of a request go past the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direct {
    Never,
    /// Reads of blocks that are not cached.
    WhereCold,
    /// All, but a system that refuses after all may use the page cache.
    Preferred,
    /// All: the caller insists.
    Always,
}

/// What the lanes of one request (or of one part of it) work on.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub file: &'a Arc<File>,
    pub operation: Operation,
    pub plan: &'a Plan,
    pub memory: &'a Memory,
    pub direct: Direct,
    pub queue_depth: u32,
    pub counters: &'a Counters,
    pub gate: Option<&'a dyn Gate>,
    pub ring: &'static Ring,
}

impl Work<'_> {
    /// Whether this block should go past the page cache.
    pub fn goes_direct(&self, block: &Block) -> bool {
        match self.direct {
            Direct::Always | Direct::Preferred => true,
            Direct::Never => false,
            Direct::WhereCold => self.plan.spans(block).first().is_some_and(|span| {
                let fd = self.file.buffered_fd();
                residency(fd, span.offset, span.length).is_some_and(|share| share < 0.5)
            }),
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
    fn may_fall_back(&self, error: &io::Error) -> bool {
        self.direct != Direct::Always
            && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
    }

    /// Moves a span between the file and its place in a slot. Returns whether it went direct.
    ///
    /// # Safety
    /// `slot` is valid for `plan.slot_bytes`, page-aligned, and not touched otherwise meanwhile.
    pub unsafe fn move_span(&self, direct: bool, span: &Span, slot: *mut u8) -> Result<bool> {
        // SAFETY: the planner keeps spans, and the aligned pages around them, within the slot.
        unsafe {
            let at = slot.add(span.slot_offset as usize);
            if !direct {
                self.move_buffered(at, span.offset, span.length)?;
                return Ok(false);
            }
            let align = self.file.direct_alignment();
            let head = span.offset % align;
            let needed = head + span.length;
            self.move_direct(
                at.sub(head as usize),
                span.offset - head,
                needed.next_multiple_of(align),
                needed,
            )
        }
    }
}
