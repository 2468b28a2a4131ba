//! The work of a plan that writes: the chunks that get new elements.

use std::sync::Arc;

use penstock_engine::error::{Error, Kind, Result};

use super::job::Stored;
use super::{ChunkJob, Plan, PlanJobs, Source, in_dataset};
use crate::boxes::Placement;
use crate::selection::{Axis, Selection};

/// One chunk, or block of contiguous data, some of whose elements change.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The stored chunk, if there is one. Its placement has the elements that change.
    pub job: ChunkJob,
    /// The part of the present contents that must be kept.
    pub before: Before,
}

/// The part of a chunk's present contents that a write must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing: every byte changes, or every byte of the [`span`](ChunkJob::span) that is written.
    Nothing,
    /// The fill value: elements outside the array hold it, or all of a chunk that was never
    /// written.
    Fill,
    /// The stored elements that do not change.
    Stored,
}

/// The chunks that a write changes, in order of their numbers.
pub struct Changes {
    plan: Arc<Plan>,
    works: PlanJobs,
    /// Whether only the new elements are written, each where it is stored.
    is_in_place: bool,
}

impl Changes {
    /// Iterates over all chunks that the plan touches.
    pub fn new(plan: &Arc<Plan>) -> Changes {
        Changes {
            plan: Arc::clone(plan),
            works: plan.works(),
            is_in_place: false,
        }
    }

    /// Iterates over all chunks that the plan touches, for a writer that writes only the new
    /// elements, each where it is stored. None of the present contents is kept, because none is
    /// written. Chunks without storage, and chunks that filters encode, are errors.
    pub fn in_place(plan: &Arc<Plan>) -> Changes {
        Changes {
            is_in_place: true,
            ..Changes::new(plan)
        }
    }

    fn stored_in_place(&self, chunk: u64, placement: Placement) -> Result<Changed> {
        let plan = &self.plan;
        let job = match plan.source {
            Source::Contiguous { offset } => plan.block(offset, chunk, placement),
            _ => {
                let new = ChunkJob::new(plan, chunk, Stored::nowhere(plan.decoded_size), placement);
                let stored = plan.stored(&new)?;
                let found = stored.filter(|job| job.is_plain);
                found.ok_or_else(|| {
                    let first = plan.first_element(chunk);
                    let text = format!(
                        "the chunk at {first:?} has no storage of its own size in the file"
                    );
                    in_dataset(Error::new(Kind::Invalid, text), plan.name())
                })?
            }
        };
        Ok(Changed {
            job: job.with_all_stored(),
            before: Before::Nothing,
        })
    }

    fn changed(&self, chunk: u64, placement: Placement) -> Result<Changed> {
        if self.is_in_place {
            return self.stored_in_place(chunk, placement);
        }
        let plan = &self.plan;
        let start = match plan.source {
            Source::Contiguous { offset } => Some(offset),
            Source::Memory => Some(0),
            _ => None,
        };
        if let Some(offset) = start {
            // The last block ends where the array does. A block in which one run of elements
            // changes is written from the first to the last of them only.
            let job = plan.block(offset, chunk, placement).with_all_stored();
            let (low, high) = job.span;
            let is_one_run = job.elements * plan.file_element() == high - low;
            debug_assert!(
                job.elements == plan.inside(chunk) || is_one_run || plan.rewritten().is_some()
            );
            let before = if is_one_run {
                Before::Nothing
            } else {
                Before::Stored
            };
            return Ok(Changed { job, before });
        }
        let inside = plan.inside(chunk);
        let new = ChunkJob::new(plan, chunk, Stored::nowhere(plan.decoded_size), placement);
        // The stored bytes do not matter in this case, even if they are damaged.
        if new.elements == inside {
            let before = if inside == plan.grid.elements() {
                Before::Nothing
            } else {
                Before::Fill
            };
            return Ok(Changed { job: new, before });
        }
        Ok(match plan.stored(&new)? {
            // All stored bytes are needed, also those of a chunk without filters.
            Some(job) => Changed {
                job: job.with_all_stored(),
                before: Before::Stored,
            },
            None => Changed {
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

impl Plan {
    /// Returns the number of elements of a chunk that lie inside the array.
    fn inside(&self, chunk: u64) -> u64 {
        let sides = self.grid.shape().iter().zip(self.grid.chunk());
        self.first_element(chunk)
            .iter()
            .zip(sides)
            .map(|(first, (size, side))| (*side).min(size - first))
            .product()
    }

    /// Returns the sides of the blocks of contiguous data if some blocks are written together with
    /// elements that do not change. No other writer may change these elements meanwhile.
    pub fn rewritten(&self) -> Option<&[u64]> {
        let Source::Contiguous { .. } = self.source else {
            return None;
        };
        let is_one_run = match &self.selection {
            Selection::Grid(axes) => self.are_runs(axes),
            Selection::Runs(runs) => runs.len() <= 1,
        };
        (!is_one_run).then(|| self.grid.chunk())
    }

    /// Returns whether the selected elements of each block form one run.
    fn are_runs(&self, axes: &[Axis]) -> bool {
        let sides = self.grid.shape().iter().zip(self.grid.chunk());
        let mut is_full = true;
        for (axis, (size, side)) in axes.iter().zip(sides).rev() {
            if *side == 1 && *size > 1 {
                // A block has one index of this dimension and of all outer ones.
                break;
            }
            let Some(count) = axis.longest_run_alone(*side) else {
                return false;
            };
            if count > 1 && !is_full {
                return false;
            }
            is_full &= count == *size;
        }
        true
    }
}
