//! `mapped`: cached pages are mapped and pinned in place, and the GPU pulls them. The CPU copies
//! nothing, so one thread can keep the link busy. The route only reads, because the kernel does not
//! allow file pages to be pinned for a device that writes to them.

mod pages;

use super::{Lane, Route, STAGED, Work};
use crate::error::{Error, Kind, Result};
use crate::file::position::Operation;
use crate::gpu::{Direction, Entered, OwnContext, QueueLease};
use crate::options::RouteName;
use crate::plan::{Block, Extent};
use crate::report::Path;
use pages::{Map, MapOutcome, stretches};
use std::ops::Range;
use std::sync::Arc;

pub(crate) struct Mapped;

impl Route for Mapped {
    fn name(&self) -> RouteName {
        RouteName::Mapped
    }
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        let context = work.own_context()?;
        if work.operation == Operation::Write {
            work.counters
                .note("the mapped route only reads; written by the staged route");
            return STAGED.lane(work);
        }
        if !context.registers_read_only {
            work.counters
                .note("this GPU cannot pin read-only mappings; read by the staged route");
            return STAGED.lane(work);
        }
        Ok(Box::new(MappedOrStaged::new(work, context, false)?))
    }
}

/// The route of `auto` with few CPU threads: blocks in the page cache are pulled, which needs no
/// CPU copy. Other blocks are staged, and bypass the cache.
pub(crate) struct Resident;

impl Route for Resident {
    fn name(&self) -> RouteName {
        RouteName::Auto
    }
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        let context = work.own_context()?;
        Ok(Box::new(MappedOrStaged::new(work, context, true)?))
    }
}

/// Bytes that a lane pins before it unpins all of them at once: unpinning waits for the work of all
/// lanes, so it should be rare.
const PINNED_AT_A_TIME: u64 = 512 << 20;

/// The most mappings of a lane. A single block that needs more is staged, which is faster as well.
const MAPPINGS_AT_A_TIME: usize = 1024;

/// Whether a lane moves a block.
enum Answer {
    /// The lane moves it.
    Taken,
    /// Another route must move this block, for this reason.
    NotThis(&'static str),
    /// Another route must move all blocks of the file, for this reason.
    NotAny(&'static str),
}

/// One worker's pinned blocks.
struct MappedLane<'a> {
    work: Work<'a>,
    // Dropped before the maps: this waits for all copies.
    lease: QueueLease<'a>,
    open: Vec<Open>,
    /// Bytes of all open blocks.
    pinned: u64,
    /// Mappings of all open blocks.
    mappings: usize,
}

/// A block whose pages are pinned and which the GPU is pulling.
struct Open {
    maps: Vec<Map>,
    bytes: u64,
    offset: u64,
    length: u64,
}

impl<'a> MappedLane<'a> {
    fn new(work: Work<'a>, context: &'a Arc<OwnContext>) -> Result<Self> {
        Ok(MappedLane {
            work,
            lease: QueueLease::new(context)?,
            open: Vec::new(),
            pinned: 0,
            mappings: 0,
        })
    }

    /// Moves a block, if its pages can be pinned and pulled.
    fn try_carry(&mut self, block: &Block) -> Result<Answer> {
        // The driver copies single bytes by the CPU, which would get a signal if the file has lost
        // the page.
        let is_byte = |piece: &Extent| piece.length == 1;
        if self.work.plan.block_pieces(block).iter().any(is_byte) {
            let reason =
                "single bytes cannot be pulled from mapped pages; read by the staged route";
            return Ok(Answer::NotThis(reason));
        }
        let stretches = stretches(self.work.plan.spans(block));
        if stretches.len() > MAPPINGS_AT_A_TIME {
            return Ok(Answer::NotThis(TOO_MANY));
        }
        let are_too_many = self.mappings + stretches.len() > MAPPINGS_AT_A_TIME;
        if self.pinned > 0 && (are_too_many || self.pinned + block.bytes > PINNED_AT_A_TIME) {
            self.finish()?;
        }
        self.pull(block, stretches)
    }

    /// Waits for all copies, and releases the pages.
    fn finish(&mut self) -> Result<()> {
        let finished = self.lease.queue()?.finish();
        let open = std::mem::take(&mut self.open);
        self.pinned = 0;
        self.mappings = 0;
        let end = open.iter().map(|o| o.offset + o.length).max().unwrap_or(0);
        finished.and_then(|()| self.check_length(&open, end))?;
        for block in &open {
            self.work.counters.moved(Path::Mapped, block.bytes);
        }
        Ok(())
    }

    /// Checks that the file still has the pages. Pages that a truncation cuts off stay pinned and
    /// are pulled as they are, so that only the length of the file shows the truncation.
    fn check_length(&self, open: &[Open], end: u64) -> Result<()> {
        let size = self.work.file.size()?;
        if size >= end {
            return Ok(());
        }
        let cut = open.iter().find(|o| o.offset + o.length > size);
        Err(cut.map_or_else(
            || self.work.ended(end, 0),
            |o| self.work.ended(o.offset, o.length),
        ))
    }

    fn pull(&mut self, block: &Block, stretches: Vec<Range<u64>>) -> Result<Answer> {
        let (offset, length) = self.work.plan.stretch(block);
        let mut maps = Vec::new();
        for stretch in stretches {
            match Map::make(&self.work, stretch, self.lease.context())? {
                MapOutcome::Pinned(map) => maps.push(map),
                MapOutcome::Refused => return Ok(Answer::NotAny(CANNOT_PIN)),
                MapOutcome::NoRoom => return Ok(Answer::NotThis(TOO_MANY)),
            }
        }
        self.mappings += maps.len();
        self.open.push(Open {
            maps,
            bytes: block.bytes,
            offset,
            length,
        });
        self.pinned += block.bytes;
        // The maps are among the open ones now, so they stay pinned until the queue is finished,
        // even if something fails.
        let queue = self.lease.queue()?;
        let mut maps = self.open.last().map_or(&[][..], |open| &open.maps).iter();
        let mut current = maps.next();
        for piece in self.work.plan.block_pieces(block) {
            while current.is_some_and(|map| !map.holds(piece)) {
                current = maps.next();
            }
            let Some(map) = current else {
                let text = "a piece lies in no mapping of its block";
                return Err(Error::new(Kind::Internal, text));
            };
            self.work.counters.copy();
            // SAFETY: the piece lies in the mapping, whose pages stay pinned until the queue is
            // finished; the submitter vouches for the GPU memory.
            unsafe {
                let host = map.byte(piece.offset);
                queue.copy(Direction::ToGpu, host, piece.memory as u64, piece.length)?;
            }
        }
        Ok(Answer::Taken)
    }
}

const CANNOT_PIN: &str = "pages of this file cannot be pinned; read by the staged route";
const TOO_MANY: &str = "blocks in too many places to map are read by the staged route";

/// The lane of both routes: it stages blocks that cannot be pinned.
struct MappedOrStaged<'a> {
    work: Work<'a>,
    context: &'a Arc<OwnContext>,
    mapped: Option<MappedLane<'a>>,
    /// The only lane here with slots, because a worker must not wait for a slot while it holds
    /// another.
    staged: Option<Box<dyn Lane + 'a>>,
    /// Whether blocks that are not cached are staged.
    only_cached: bool,
    /// Whether all further blocks are staged.
    refused: bool,
    /// Restores the thread's state after the lanes, which may be dropped in another order than they
    /// were made.
    _entered: Entered,
}

/// The share of cached pages from which a block counts as cached.
const MOSTLY: f64 = 0.9;

impl<'a> MappedOrStaged<'a> {
    fn new(work: Work<'a>, context: &'a Arc<OwnContext>, only_cached: bool) -> Result<Self> {
        Ok(MappedOrStaged {
            work,
            context,
            mapped: None,
            staged: None,
            only_cached,
            refused: !context.registers_read_only,
            _entered: context.enter()?,
        })
    }

    fn is_cached(&self, block: &Block) -> bool {
        self.work.plan.spans(block).iter().all(|span| {
            let cached = self.work.file.residency(span.offset, span.length);
            cached.is_some_and(|share| share >= MOSTLY)
        })
    }
}

impl Lane for MappedOrStaged<'_> {
    fn carry(&mut self, block: &Block) -> Result<()> {
        if !self.refused && (!self.only_cached || self.is_cached(block)) {
            let mapped = match &mut self.mapped {
                Some(lane) => lane,
                none => none.insert(MappedLane::new(self.work, self.context)?),
            };
            match mapped.try_carry(block)? {
                Answer::Taken => return Ok(()),
                Answer::NotAny(_) if self.only_cached => self.refused = true,
                Answer::NotThis(_) if self.only_cached => {}
                Answer::NotThis(reason) | Answer::NotAny(reason) => self.work.counters.note(reason),
            }
        }
        let staged = match &mut self.staged {
            Some(lane) => lane,
            none => none.insert(STAGED.lane(self.work)?),
        };
        staged.carry(block)
    }

    fn drain(&mut self) -> Result<()> {
        if let Some(lane) = &mut self.mapped {
            lane.finish()?;
        }
        match &mut self.staged {
            Some(lane) => lane.drain(),
            None => Ok(()),
        }
    }
}

impl Drop for MappedLane<'_> {
    fn drop(&mut self) {
        // After an error, copies may be in flight, which must end before the pages are released. A
        // queue that cannot finish belongs to a broken context, in which nothing runs any more.
        if let Ok(queue) = self.lease.queue() {
            let _ = queue.finish();
        }
    }
}
