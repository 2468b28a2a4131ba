//! Routes: the ways bytes travel between a file and memory. One room each; all pass the same
//! conformance suite, and a wrapper such as [`fault`] is a route too.

pub mod fault;
pub(crate) mod gds;
mod host;
mod mapped;
mod resident;
mod staged;
pub(crate) mod uring;

use std::ops::Deref;

use crate::error::Result;
use crate::file::position::Gate;
pub(crate) use crate::file::side::Direct;
use crate::file::side::FileSide;
use crate::memory::Memory;
use crate::options::RouteName;
use crate::plan::{Block, Plan, Span};
use crate::staging::Ring;

pub(crate) use gds::Gds;
pub(crate) use host::Host;
pub(crate) use mapped::Mapped;
pub(crate) use resident::Resident;
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

/// What the lanes of one request (or of one part of it) work on.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub side: FileSide<'a>,
    pub plan: &'a Plan,
    pub memory: &'a Memory,
    pub queue_depth: u32,
    /// Slots of a worker on the staged route.
    pub slots: u32,
    pub ring: &'static Ring,
}

impl<'a> Deref for Work<'a> {
    type Target = FileSide<'a>;

    fn deref(&self) -> &FileSide<'a> {
        &self.side
    }
}

impl Work<'_> {
    /// Whether this block should go past the page cache.
    pub(crate) fn goes_direct(&self, block: &Block) -> bool {
        let first = self.plan.spans(block).first();
        first.is_some_and(|span| self.side.goes_direct(span.offset, span.length))
    }

    /// Moves a span between the file and its place in a slot. Returns whether it went direct.
    ///
    /// # Safety
    /// `slot` is valid for `plan.slot_bytes`, page-aligned, and not touched otherwise meanwhile.
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
