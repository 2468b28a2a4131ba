//! What `auto` does with few CPU threads: blocks that are in the page cache go by `mapped`, which
//! needs no CPU copy; the others by `staged`, past the cache.

use super::{Lane, MAPPED, Route, STAGED, Work};
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
        }))
    }
}

struct ResidentLane<'a> {
    work: Work<'a>,
    mapped: Option<Box<dyn Lane + 'a>>,
    staged: Option<Box<dyn Lane + 'a>>,
}

/// Below this share of cached pages a block is read past the cache instead of completing it.
const MOSTLY: f64 = 0.9;

impl ResidentLane<'_> {
    fn is_cached(&self, block: &Block) -> bool {
        let (offset, length) = self.work.plan.stretch(block);
        residency(self.work.file.buffered_fd(), offset, length).is_some_and(|s| s >= MOSTLY)
    }
}

impl Lane for ResidentLane<'_> {
    fn carry(&mut self, block: &Block) -> Result<()> {
        let (lane, route): (_, &dyn Route) = if self.is_cached(block) {
            (&mut self.mapped, &MAPPED)
        } else {
            (&mut self.staged, &STAGED)
        };
        let lane = match lane {
            Some(lane) => lane,
            none => none.insert(route.lane(self.work)?),
        };
        lane.carry(block)
    }

    fn drain(&mut self) -> Result<()> {
        for lane in [&mut self.mapped, &mut self.staged].into_iter().flatten() {
            lane.drain()?;
        }
        Ok(())
    }
}
