//! Routes: how bytes travel between a file and memory, a module each. All pass the same conformance
//! suite. [`fault`] is a route that wraps another one.

pub mod fault;
pub(crate) mod gds;
mod host;
mod mapped;
mod near;
mod staged;
pub(crate) mod uring;

use std::ops::Deref;

use crate::error::Result;
use crate::file::File;
use crate::file::mapping::Mappings;
use crate::file::position::{Gate, Operation};
use crate::file::reader::Reader;
pub(crate) use crate::file::side::Direct;
use crate::file::side::FileSide;
use crate::gpu::Rows;
use crate::memory::Memory;
use crate::options::RouteName;
use crate::plan::{Block, Plan, SlotCopy, Span};
use crate::staging::Ring;

pub(crate) use gds::Gds;
pub(crate) use host::Host;
pub(crate) use mapped::{Mapped, Resident};
pub(crate) use staged::Staged;
pub(crate) use uring::{HostUring, StagedUring};

/// Routes have no state, so one of each serves all requests.
pub(crate) static HOST: Host = Host;
pub(crate) static STAGED: Staged = Staged;

/// A transfer mechanism between a file and memory. All requests share it, and it keeps no state of
/// any.
pub(crate) trait Route: Send + Sync {
    fn name(&self) -> RouteName;

    /// The gate that decides about each system call on a file's data.
    fn gate(&self) -> Option<&dyn Gate> {
        None
    }

    /// A lane for one worker. It stays on that worker's thread.
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>>;
}

/// One worker's pipeline. Dropping a lane waits until nothing of it is in flight.
pub(crate) trait Lane {
    /// Moves a block, which may still be in flight on return. An error may concern an earlier block.
    fn carry(&mut self, block: &Block) -> Result<()>;

    /// Waits until all blocks have moved.
    fn drain(&mut self) -> Result<()>;
}

/// The work of the lanes of a request, or of one part of it.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub side: FileSide<'a>,
    pub plan: &'a Plan,
    pub memory: &'a Memory,
    pub queue_depth: u32,
    /// The slots of a worker on the staged route.
    pub slots: u32,
    pub ring: &'static Ring,
    /// The parts of the file that are written through mappings.
    pub mappings: Option<&'a Mappings>,
}

impl SlotCopy {
    /// The copy for a slot that begins at `start`.
    fn rows_at(&self, start: *mut u8) -> Rows {
        Rows {
            host: start.wrapping_add(self.slot_offset as usize),
            host_pitch: self.slot_pitch,
            gpu: self.memory as u64,
            gpu_pitch: self.pitch as i64,
            width: self.length,
            count: self.rows,
        }
    }
}

impl<'a> Deref for Work<'a> {
    type Target = FileSide<'a>;

    fn deref(&self) -> &FileSide<'a> {
        &self.side
    }
}

impl<'a> Work<'a> {
    /// Takes a descriptor for the lane alone, if the plan has many reads.
    fn take_reader(&mut self) -> Option<Reader<'a>> {
        let many = self.operation == Operation::Read && self.plan.has_many_calls();
        let file: &'a File = self.side.file;
        let reader = many.then(|| file.reader()).flatten();
        self.side.descriptor = reader.as_ref().and_then(Reader::fd);
        reader
    }
}

impl Work<'_> {
    /// Whether a block should bypass the page cache.
    pub(crate) fn goes_direct(&self, block: &Block) -> bool {
        let first = self.plan.spans(block).first();
        first.is_some_and(|span| self.side.goes_direct(span.offset, span.length))
    }

    /// As [`FileSide::move_buffered`], through the mappings where they reach.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn move_buffered(
        &self,
        buffer: *mut u8,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        // SAFETY: passed on, in parts.
        let plainly = |at, from, bytes| unsafe { self.side.move_buffered(at, from, bytes) };
        match self.mappings {
            // SAFETY: passed on.
            Some(mappings) => unsafe { mappings.write_or(buffer, offset, length, plainly) },
            None => plainly(buffer, offset, length),
        }
    }

    /// Moves a span between the file and its place in a slot. Returns whether it bypassed the page
    /// cache.
    ///
    /// # Safety
    /// `slot` is page-aligned and valid for `plan.slot_bytes`, and no other code touches it meanwhile.
    pub(crate) unsafe fn move_span(
        &self,
        direct: bool,
        span: &Span,
        slot: *mut u8,
    ) -> Result<bool> {
        // SAFETY: the planner keeps spans, and the aligned pages around them, within the slot.
        unsafe {
            let at = slot.add(span.slot_offset as usize);
            if !direct {
                self.move_buffered(at, span.offset, span.length)?;
                return Ok(false);
            }
            let (head, whole) = span.aligned(self.file.direct_alignment());
            let (at, offset) = (at.sub(head as usize), span.offset - head);
            self.move_direct(at, offset, whole, head + span.length)
        }
    }
}
