//! The work of a plan seen from a write: chunks that get new elements.

use std::sync::Arc;

use penstock_engine::error::Result;

use super::{ChunkJob, NO_FILTERS, ReadPlan, Source, Work, Works};
use crate::placement::Placement;
use crate::selection::{Axis, Selection};

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
    /// Every byte changes, or every one of the [`span`](ChunkJob::span) that is written.
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
        let elements = new.elements(plan);
        let is_covered = elements == inside;
        let start = match plan.source {
            Source::Contiguous { offset } => Some(offset),
            Source::Given => Some(0),
            _ => None,
        };
        if let Some(offset) = start {
            // A block ends where the dataset does. Of one that is covered from the first to the last
            // changed element no more is written.
            let (low, high) = new.span(plan);
            let is_one_run = elements * plan.item.stored == high - low;
            debug_assert!(is_covered || is_one_run || plan.rewritten().is_some());
            return Ok(Changed {
                job: ChunkJob {
                    mask: NO_FILTERS,
                    ..plan.block(offset, new)
                },
                before: if is_one_run {
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
        let touched = self.works.touched()?;
        Some(touched.and_then(|(chunk, placement)| self.changed(chunk, placement)))
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

    /// The sides of the blocks of contiguous data, if some are written with elements between those that
    /// change: nothing else may change these meanwhile.
    pub(crate) fn rewritten(&self) -> Option<&[u64]> {
        let Source::Contiguous { .. } = self.source else {
            return None;
        };
        let is_one_run = match &self.selection {
            Selection::Grid(axes) => self.are_runs(axes),
            Selection::Runs(runs) => runs.len() <= 1,
        };
        (!is_one_run).then(|| self.grid.chunk())
    }

    /// Whether what is selected of each block is one run of elements.
    fn are_runs(&self, axes: &[Axis]) -> bool {
        let sides = self.grid.shape().iter().zip(self.grid.chunk());
        let mut is_full = true;
        for (axis, (size, side)) in axes.iter().zip(sides).rev() {
            if *side == 1 && *size > 1 {
                // Of this dimension, and those further out, a block has one index.
                break;
            }
            let Some((_, count)) = axis.as_range() else {
                return false;
            };
            if count > 1 && !is_full {
                return false;
            }
            is_full &= count == *size;
        }
        true
    }

    /// Whether a chunk is stored without any filter, because it sticks out of the dataset.
    pub(crate) fn is_bare(&self, chunk: u64) -> bool {
        self.dont_filter_edges && self.grid.is_partial(chunk)
    }
}
