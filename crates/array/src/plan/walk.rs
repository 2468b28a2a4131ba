//! Iteration over the chunks that a selection touches.
//!
//! A grid selection touches the product of the chunks that each axis touches, so the walk is an
//! odometer: it advances the last axis to the next chunk that contains a selected index, and on
//! overflow the axis before it. Only the segments of axes that changed are computed again. Runs are
//! regrouped by [`RunsByChunk`](super::runs_by_chunk). Both forms yield each touched chunk once, in
//! order of its number.

use std::sync::Arc;

use penstock_engine::error::Result;

use super::runs_by_chunk::RunsByChunk;
use super::{ChunkJob, FillJob, Plan, PlanJob};
use crate::boxes::{Placement, Ranges};
use crate::selection::{Axis, Selection};

/// The work of a plan, chunk by chunk. It owns a reference to the plan, so it can move to any
/// thread.
pub struct PlanJobs {
    plan: Arc<Plan>,
    walk: Walk,
}

enum Walk {
    /// Not begun: the first call of `next` finds the first chunk.
    Start,
    Grid(GridWalk),
    Runs(RunsByChunk),
    Over,
}

/// The next chunk and its ranges along each axis, which neighbouring chunks share.
struct GridWalk {
    coordinates: Vec<u64>,
    ranges: Vec<Arc<Vec<Ranges>>>,
}

impl PlanJobs {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        PlanJobs {
            plan,
            walk: Walk::Start,
        }
    }

    /// Returns the next touched chunk. Iteration ends after an error, which means that memory ran
    /// out.
    pub(super) fn touched(&mut self) -> Option<Result<(u64, Placement)>> {
        let touched = self.step();
        if !matches!(touched, Ok(Some(_))) {
            self.walk = Walk::Over;
        }
        touched.transpose()
    }

    fn step(&mut self) -> Result<Option<(u64, Placement)>> {
        if let Walk::Start = self.walk {
            self.walk = Walk::first(&self.plan)?;
        }
        match &mut self.walk {
            Walk::Runs(chunks) => {
                let next = chunks.next()?;
                Ok(next.map(|(chunk, pieces)| (chunk, Placement::Runs(pieces))))
            }
            Walk::Grid(walk) => {
                let chunk = self.plan.grid.number(&walk.coordinates);
                let placement = Placement::Grid(walk.ranges.clone());
                if let Selection::Grid(axes) = &self.plan.selection
                    && !walk.advance(&self.plan, axes)?
                {
                    self.walk = Walk::Over;
                }
                Ok(Some((chunk, placement)))
            }
            Walk::Start | Walk::Over => Ok(None),
        }
    }
}

impl Walk {
    fn first(plan: &Plan) -> Result<Walk> {
        match &plan.selection {
            Selection::Runs(runs) => Ok(Walk::Runs(RunsByChunk::new(plan.grid.clone(), runs)?)),
            Selection::Grid(axes) => {
                let first = GridWalk::first(plan, axes)?;
                Ok(first.map_or(Walk::Over, Walk::Grid))
            }
        }
    }
}

impl Iterator for PlanJobs {
    type Item = Result<PlanJob>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (chunk, placement) = match self.touched()? {
                Ok(touched) => touched,
                Err(error) => return Some(Err(error)),
            };
            if let Some(work) = self.plan.work(chunk, placement).transpose() {
                return Some(work);
            }
        }
    }
}

impl GridWalk {
    fn first(plan: &Plan, axes: &[Axis]) -> Result<Option<GridWalk>> {
        let coordinates: Option<Vec<u64>> = axes
            .iter()
            .zip(plan.grid.chunk())
            .map(|(axis, side)| Some(axis.next(0)? / side))
            .collect();
        let Some(coordinates) = coordinates else {
            return Ok(None);
        };
        let ranges: Result<_> = (0..axes.len())
            .map(|at| ranges(plan, axes, at, coordinates[at]))
            .collect();
        Ok(Some(GridWalk {
            coordinates,
            ranges: ranges?,
        }))
    }

    /// Advances to the next touched chunk; returns false after the last one.
    fn advance(&mut self, plan: &Plan, axes: &[Axis]) -> Result<bool> {
        for at in (0..axes.len()).rev() {
            let side = plan.grid.chunk()[at];
            let next = axes[at].next((self.coordinates[at] + 1) * side);
            let has_next = next.is_some();
            let Some(index) = next.or_else(|| axes[at].next(0)) else {
                return Ok(false);
            };
            if self.coordinates[at] != index / side {
                self.coordinates[at] = index / side;
                self.ranges[at] = ranges(plan, axes, at, self.coordinates[at])?;
            }
            if has_next {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn ranges(plan: &Plan, axes: &[Axis], at: usize, coordinate: u64) -> Result<Arc<Vec<Ranges>>> {
    let side = plan.grid.chunk()[at];
    let found = axes[at].ranges(coordinate * side, (coordinate + 1) * side)?;
    Ok(Arc::new(found))
}

/// A portion of the work.
#[derive(Debug, Default)]
pub struct Window {
    /// Jobs for stored chunks, sorted by address.
    pub jobs: Vec<ChunkJob>,
    /// Jobs for chunks that were never written.
    pub fills: Vec<FillJob>,
    /// Stored bytes of the jobs.
    pub stored_bytes: u64,
    /// Decoded bytes of the jobs.
    pub decoded_bytes: u64,
}

/// The work of a plan in portions.
pub struct Windows {
    works: PlanJobs,
    limit: u64,
    /// Work that did not fit into the last portion.
    left: Option<Result<PlanJob>>,
}

/// Largest number of jobs in a portion, however small their chunks.
const MOST_JOBS: usize = 1 << 16;

impl Windows {
    pub(super) fn new(plan: Arc<Plan>, limit: u64) -> Self {
        Windows {
            works: PlanJobs::new(plan),
            limit,
            left: None,
        }
    }

    /// Whether no portion follows the one that was returned last.
    pub fn is_over(&self) -> bool {
        // A portion ends with work that does not fit, or with the last work.
        self.left.is_none()
    }
}

impl Iterator for Windows {
    type Item = Result<Window>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut window = Window::default();
        let mut used = 0u64;
        while let Some(work) = self.left.take().or_else(|| self.works.next()) {
            let work = match work {
                Ok(work) => work,
                Err(error) if used == 0 => return Some(Err(error)),
                Err(error) => {
                    self.left = Some(Err(error));
                    break;
                }
            };
            let bytes = match &work {
                PlanJob::Chunk(job) => job.stored_size.saturating_add(job.decoded_size),
                PlanJob::Fill(_) => 0,
            };
            let placement = match &work {
                PlanJob::Chunk(job) => job.placement(),
                PlanJob::Fill(job) => job.placement(),
            };
            let weight = bytes
                .saturating_add(placement.bytes())
                .saturating_add(size_of::<PlanJob>() as u64);
            let is_full = window.jobs.len() + window.fills.len() >= MOST_JOBS
                || used.saturating_add(weight) > self.limit;
            if used > 0 && is_full {
                self.left = Some(Ok(work));
                break;
            }
            used = used.saturating_add(weight);
            match work {
                PlanJob::Chunk(job) => {
                    window.stored_bytes = window.stored_bytes.saturating_add(job.stored_size);
                    window.decoded_bytes = window.decoded_bytes.saturating_add(job.decoded_size);
                    window.jobs.push(job);
                }
                PlanJob::Fill(job) => window.fills.push(job),
            }
        }
        if used == 0 {
            return None;
        }
        window.jobs.sort_by_key(|job| job.address);
        Some(Ok(window))
    }
}

/// Workers share one iterator.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<PlanJobs>();
    is_send::<Windows>();
};
