//! The work of a plan seen from a write: chunks that get new elements.

use std::sync::Arc;

use penstock_engine::error::Result;

use super::{ChunkJob, NO_FILTERS, ReadPlan, Source, Work, Works};
use crate::placement::Placement;

/// One chunk, or block of contiguous data, of which some elements change.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    /// Where it is stored, where it is; its placement says which elements change.
    pub job: ChunkJob,
    pub before: Before,
}

/// What of the chunk as it is counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Every byte changes.
    Nothing,
    /// Elements outside the dataset, which are to be the fill value, or all of a chunk that was
    /// never written.
    Fill,
    /// The elements that do not change.
    Stored,
}

/// What a write changes, chunk by chunk in order of number.
pub(crate) struct Changes {
    plan: Arc<ReadPlan>,
    works: Works,
}

impl Changes {
    pub fn new(plan: &Arc<ReadPlan>) -> Changes {
        Changes {
            plan: Arc::clone(plan),
            works: plan.works(),
        }
    }

    fn changed(&self, chunk: u64, placement: Placement) -> Result<Changed> {
        let plan = &self.plan;
        let new = ChunkJob {
            chunk,
            address: 0,
            stored_size: 0,
            mask: 0,
            is_plain: false,
            decoded_size: plan.decoded_size,
            placement,
        };
        let inside = plan.inside(chunk);
        let is_covered = new.elements(plan) == inside;
        let start = match plan.source {
            Source::Contiguous { offset } => Some(offset),
            Source::Given => Some(0),
            _ => None,
        };
        if let Some(offset) = start {
            // A block ends where the dataset does.
            return Ok(Changed {
                job: ChunkJob {
                    mask: NO_FILTERS,
                    ..plan.block(offset, new)
                },
                before: if is_covered {
                    Before::Nothing
                } else {
                    Before::Stored
                },
            });
        }
        // What is stored does not matter then, be it damaged.
        if is_covered {
            let is_full = inside == plan.grid.elements();
            let before = if is_full {
                Before::Nothing
            } else {
                Before::Fill
            };
            return Ok(Changed { job: new, before });
        }
        let found = plan.work(chunk, new.placement.clone())?;
        Ok(match found {
            // All of it is needed, also where it is stored without filters.
            Some(Work::Chunk(job)) => Changed {
                job: ChunkJob {
                    is_plain: false,
                    ..job
                },
                before: Before::Stored,
            },
            _ => Changed {
                job: new,
                before: Before::Fill,
            },
        })
    }
}

impl Iterator for Changes {
    type Item = Result<Changed>;

    fn next(&mut self) -> Option<Self::Item> {
        let (chunk, placement) = self.works.touched()?;
        Some(self.changed(chunk, placement))
    }
}

impl ReadPlan {
    /// Elements of a chunk that lie in the dataset.
    fn inside(&self, chunk: u64) -> u64 {
        let sides = self.grid.shape().iter().zip(self.grid.chunk());
        self.first_element(chunk)
            .iter()
            .zip(sides)
            .map(|(first, (size, side))| (*side).min(size - first))
            .product()
    }

    /// Whether a chunk is stored without any filter, because it sticks out of the dataset.
    pub(crate) fn is_bare(&self, chunk: u64) -> bool {
        self.dont_filter_edges && self.grid.is_partial(chunk)
    }
}
