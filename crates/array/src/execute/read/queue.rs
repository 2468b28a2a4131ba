//! The work queue of a read: jobs are handed out in small batches, in order of their addresses.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use penstock_engine::error::Result;

use crate::execute::bound::BoundPlan;
use crate::{ChunkJob, FillJob, Windows};

/// What one worker takes on at a time.
pub(super) enum Batch {
    /// Jobs of one plan, by its number, whose addresses ascend, near to each other.
    Chunks(usize, Vec<ChunkJob>),
    Fill(usize, FillJob),
}

/// The work of several plans, one after the other, shared by workers.
pub(super) struct WorkQueue {
    state: Mutex<State>,
}

struct State {
    /// Chunks of each plan that were not handed out, about.
    left: Vec<u64>,
    /// Decoded bytes of a full chunk of each plan.
    sizes: Vec<u64>,
    /// Of the plans that were not begun, the last first.
    waiting: Vec<(usize, Windows)>,
    jobs: VecDeque<(usize, ChunkJob)>,
    fills: VecDeque<(usize, FillJob)>,
}

/// Jobs are sorted by address within so many bytes, and planned by the worker that needs them.
const WINDOW: u64 = 64 << 20;
/// A batch ends when it has so many stored bytes,
const BATCH: u64 = 256 << 10;
/// or so many decoded ones,
const BATCH_DECODED: u64 = 1 << 20;
/// or when the next chunk lies further away than this.
const GAP: u64 = 16 << 10;

/// Jobs that do not fit are looked through for others that do, so many at a time.
const MOST_PASSED_OVER: usize = 1024;

/// With so many fills waiting, no more is planned in search of chunks.
const MOST_FILLS: usize = 1 << 16;

impl WorkQueue {
    pub(super) fn new(plans: &[BoundPlan]) -> WorkQueue {
        let windows = plans.iter().map(|r| Arc::clone(&r.plan).windows(WINDOW));
        let mut waiting: Vec<(usize, Windows)> = windows.enumerate().collect();
        waiting.reverse();
        WorkQueue {
            state: Mutex::new(State {
                left: plans.iter().map(|r| r.plan.touched()).collect(),
                sizes: plans.iter().map(|r| r.plan.decoded_size()).collect(),
                waiting,
                jobs: VecDeque::new(),
                fills: VecDeque::new(),
            }),
        }
    }

    /// The next batch; `None` when all are handed out.
    pub(super) fn next_batch(&self, plans: &[BoundPlan]) -> Result<Option<Batch>> {
        let mut state = self.lock();
        if !state.fill_up()? {
            return Ok(None);
        }
        if let Some((number, job)) = state.fills.pop_front() {
            return Ok(Some(Batch::Fill(number, job)));
        }
        let mut batch: Vec<ChunkJob> = Vec::new();
        let (mut stored, mut decoded, mut end) = (0, 0, 0);
        let mut of = 0;
        while let Some((number, job)) = state.jobs.front() {
            let (from, to) = plans[*number].needed(job);
            let start = job.address + from;
            let goes_on = *number == of
                && start >= end
                && start - end <= GAP
                && stored + (to - from) <= BATCH
                && decoded + job.decoded_size <= BATCH_DECODED;
            if !batch.is_empty() && !goes_on {
                break;
            }
            of = *number;
            stored += to - from;
            decoded += job.decoded_size;
            end = job.address + to;
            batch.extend(state.jobs.pop_front().map(|(_, job)| job));
        }
        state.handed_out(of, batch.len());
        Ok(Some(Batch::Chunks(of, batch)))
    }

    /// How many chunks were not handed out, about, of the plan whose turn it is, and the decoded
    /// bytes of one; `None` while only fills come.
    pub(super) fn left(&self) -> Result<Option<(u64, u64)>> {
        let mut state = self.lock();
        if !state.fill_up()? {
            return Ok(Some((0, 1)));
        }
        let Some((number, _)) = state.jobs.front() else {
            return Ok(None);
        };
        let number = *number;
        let known = state.jobs.len() as u64;
        let left = state.left[number].max(known);
        Ok(Some((left, state.sizes[number].max(1))))
    }

    /// Up to `count` jobs of one plan for which `needs` gives the memory that each takes, at most
    /// `bytes` together.
    pub(super) fn take(
        &self,
        count: usize,
        bytes: u64,
        needs: impl Fn(usize, &ChunkJob) -> Option<u64>,
    ) -> Result<(usize, Vec<ChunkJob>)> {
        let mut state = self.lock();
        let (mut taken, mut passed_over) = (Vec::new(), Vec::new());
        let (mut of, mut used) = (None, 0);
        while taken.len() < count {
            let has_more =
                !state.jobs.is_empty() || (state.fills.len() < MOST_FILLS && state.plan_more()?);
            if !has_more {
                break;
            }
            let Some((number, job)) = state.jobs.pop_front() else {
                continue;
            };
            let is_other = of.is_some_and(|of| of != number);
            match needs(number, &job) {
                Some(size) if is_other || used + size > bytes => {
                    state.jobs.push_front((number, job));
                    break;
                }
                Some(size) => {
                    of = Some(number);
                    used += size;
                    taken.push(job);
                }
                None => {
                    passed_over.push((number, job));
                    // Most of the chunks are not for the GPU.
                    if passed_over.len() > taken.len() + MOST_PASSED_OVER {
                        break;
                    }
                }
            }
        }
        for passed in passed_over.into_iter().rev() {
            state.jobs.push_front(passed);
        }
        let of = of.unwrap_or(0);
        state.handed_out(of, taken.len());
        Ok((of, taken))
    }

    /// Takes back what was handed out.
    pub(super) fn put_back(&self, number: usize, jobs: Vec<ChunkJob>) {
        let mut state = self.lock();
        for job in jobs.into_iter().rev() {
            state.jobs.push_front((number, job));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// At least `count` jobs, if there are as many: to see how much there is to do.
    pub(super) fn peek(&self, count: usize) -> Result<usize> {
        let mut state = self.lock();
        while state.jobs.len() + state.fills.len() < count && state.plan_more()? {}
        Ok(state.jobs.len() + state.fills.len())
    }
}

impl State {
    fn handed_out(&mut self, number: usize, chunks: usize) {
        if let Some(left) = self.left.get_mut(number) {
            *left = left.saturating_sub(chunks as u64);
        }
    }

    /// Makes sure that there is something to hand out; false if all is.
    fn fill_up(&mut self) -> Result<bool> {
        while self.jobs.is_empty() && self.fills.is_empty() {
            if !self.plan_more()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn plan_more(&mut self) -> Result<bool> {
        while let Some((number, windows)) = self.waiting.last_mut() {
            let number = *number;
            match windows.next().transpose()? {
                Some(window) => {
                    self.jobs
                        .extend(window.jobs.into_iter().map(|job| (number, job)));
                    self.fills
                        .extend(window.fills.into_iter().map(|job| (number, job)));
                    return Ok(true);
                }
                None => {
                    self.waiting.pop();
                }
            }
        }
        Ok(false)
    }
}
