//! The work queue of a read, which hands out jobs in small batches, sorted by address.
//!
//! Planning all jobs first would delay the first read and hold every job in memory; planning one at
//! a time would read the file in the order of the array. So a worker that finds the queue empty
//! plans the next *window* of work and sorts it by address, and all workers then take *batches*
//! from its front. A batch consists of jobs that are close together in the file, because one call
//! reads them, and ends early enough that one worker does not decode for long while others have no
//! work. Towards the end of the read, batches shrink.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use penstock_engine::Recover;
use penstock_engine::error::Result;

use crate::execute::bound::BoundPlan;
use crate::{ChunkJob, FillJob, Windows};

/// The work that one worker takes at a time.
pub(super) enum Batch {
    /// Jobs of the plan with this number, sorted by address and close to each other.
    Chunks(usize, Vec<ChunkJob>),
    Fill(usize, FillJob),
}

/// The work of several plans in sequence, shared by workers.
pub(super) struct WorkQueue {
    workers: usize,
    state: Mutex<QueueState>,
}

struct QueueState {
    /// Number of chunks of each plan that are not handed out; an estimate until all are planned.
    left: Vec<u64>,
    /// Decoded size of a full chunk of each plan.
    sizes: Vec<u64>,
    /// Plans that are not begun, the next one last.
    waiting: Vec<(usize, Windows)>,
    jobs: VecDeque<(usize, ChunkJob)>,
    fills: VecDeque<(usize, FillJob)>,
}

/// Jobs are sorted by address within windows of this many bytes. A window is planned by the worker
/// that needs it.
const WINDOW: u64 = 64 << 20;
/// Stored bytes after which a batch ends.
const BATCH: u64 = 256 << 10;
/// Decoded bytes after which a batch ends.
const BATCH_DECODED: u64 = 1 << 20;
/// The largest distance between two chunks of a batch.
const GAP: u64 = 16 << 10;

/// Number of jobs that `take` examines past those that do not fit.
const MOST_PASSED_OVER: usize = 1024;

/// Once this many fills wait, no more chunks are planned in search of jobs for the GPU.
const MOST_FILLS: usize = 1 << 16;

impl WorkQueue {
    pub(super) fn new(plans: &[BoundPlan], workers: usize) -> WorkQueue {
        let windows = plans.iter().map(|r| Arc::clone(&r.plan).windows(WINDOW));
        let mut waiting: Vec<(usize, Windows)> = windows.enumerate().collect();
        waiting.reverse();
        WorkQueue {
            workers,
            state: Mutex::new(QueueState {
                left: plans.iter().map(|r| r.plan.touched()).collect(),
                sizes: plans.iter().map(|r| r.plan.decoded_size()).collect(),
                waiting,
                jobs: VecDeque::new(),
                fills: VecDeque::new(),
            }),
        }
    }

    /// Returns the next batch; `None` once all are handed out.
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
        let most = state.most_to_decode(self.workers);
        while let Some((number, job)) = state.jobs.front() {
            let (from, to) = plans[*number].needed(job);
            let start = job.address + from;
            let continues = *number == of
                && start >= end
                && start - end <= GAP
                && stored + (to - from) <= BATCH
                && decoded + job.decoded_size <= BATCH_DECODED
                && (job.is_plain || batch.len() < most);
            if !batch.is_empty() && !continues {
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

    /// Returns the number of the current plan, about how many of its chunks remain, and the decoded
    /// size of one; `None` while only fills remain.
    pub(super) fn left(&self) -> Result<Option<(usize, u64, u64)>> {
        let mut state = self.lock();
        if !state.fill_up()? {
            return Ok(Some((0, 0, 1)));
        }
        let Some((number, _)) = state.jobs.front() else {
            return Ok(None);
        };
        let number = *number;
        let known = state.jobs.len() as u64;
        let left = state.left[number].max(known);
        Ok(Some((number, left, state.sizes[number].max(1))))
    }

    /// Takes up to `count` jobs of one plan for which `needs` returns their memory requirement, and
    /// at most `bytes` of memory in all.
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
                    // Most of the chunks cannot be decoded by the GPU.
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

    /// Puts jobs back into the queue.
    pub(super) fn put_back(&self, number: usize, jobs: Vec<ChunkJob>) {
        let mut state = self.lock();
        for job in jobs.into_iter().rev() {
            state.jobs.push_front((number, job));
        }
    }

    /// As [`put_back`](Self::put_back), for a job that fills.
    pub(super) fn put_back_fill(&self, number: usize, job: FillJob) {
        self.lock().fills.push_front((number, job));
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().recover()
    }

    /// Plans until at least `count` jobs are ready, if there are as many, and returns how many are.
    pub(super) fn peek(&self, count: usize) -> Result<usize> {
        let mut state = self.lock();
        while state.jobs.len() + state.fills.len() < count && state.plan_more()? {}
        Ok(state.jobs.len() + state.fills.len())
    }
}

impl QueueState {
    /// Returns how many chunks to decode a worker takes at a time. Towards the end of the read this
    /// is a small number, so that all workers end at about the same time.
    fn most_to_decode(&self, workers: usize) -> usize {
        let known = self.jobs.len();
        let left = self.jobs.front().and_then(|(of, _)| self.left.get(*of));
        let left = left.map_or(known, |left| known.max(*left as usize));
        (left / (2 * workers.max(1))).max(1)
    }

    fn handed_out(&mut self, number: usize, chunks: usize) {
        if let Some(left) = self.left.get_mut(number) {
            *left = left.saturating_sub(chunks as u64);
        }
    }

    /// Ensures that there is work to hand out; returns false if none is left.
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
                    if windows.is_over() {
                        // The estimate for a list of elements may be far too large.
                        let of_plan = self.jobs.iter().filter(|(of, _)| *of == number);
                        self.left[number] = of_plan.count() as u64;
                        self.waiting.pop();
                    }
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
