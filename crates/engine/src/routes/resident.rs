//! `auto` with few CPU threads: blocks in the page cache take `mapped`, which needs no CPU copy;
//! other blocks take `staged` and bypass the cache.

use super::mapped::{Answer, MappedLane};
use super::{Lane, Route, STAGED, Work};
use crate::error::Result;
use crate::file::residency::residency;
use crate::options::RouteName;
use crate::plan::Block;

pub(crate) struct Resident;

impl Route for Resident {
    fn name(&self) -> RouteName {
        RouteName::Auto
    }
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        Ok(Box::new(ResidentLane {
            work,
            mapped: None,
            staged: None,
            refused: !work.gpu_context()?.registers_read_only,
        }))
    }
}

struct ResidentLane<'a> {
    work: Work<'a>,
    mapped: Option<MappedLane<'a>>,
    /// The only lane here with slots, because a worker must not wait for a slot while it holds
    /// another.
    staged: Option<Box<dyn Lane + 'a>>,
    /// Whether pages of this file cannot be pinned.
    refused: bool,
}

/// The share of cached pages from which a block counts as cached. Other blocks bypass the cache.
const MOSTLY: f64 = 0.9;

impl ResidentLane<'_> {
    fn is_cached(&self, block: &Block) -> bool {
        let fd = self.work.file.buffered_fd();
        self.work.plan.spans(block).iter().all(|span| {
            residency(fd, span.offset, span.length).is_some_and(|share| share >= MOSTLY)
        })
    }
}

impl Lane for ResidentLane<'_> {
    fn carry(&mut self, block: &Block) -> Result<()> {
        if !self.refused && self.is_cached(block) {
            let mapped = match &mut self.mapped {
                Some(lane) => lane,
                none => none.insert(MappedLane::new(self.work, self.work.gpu_context()?)?),
            };
            match mapped.try_carry(block)? {
                Answer::Taken => return Ok(()),
                Answer::NotThis(_) => {}
                Answer::NotAny(_) => self.refused = true,
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
