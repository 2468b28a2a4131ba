//! What a request does, as its workers see it.
//!
//! # Steps of the submitter
//!
//! Some work may run only on the thread that submitted the request, such as calls of HDF5. A
//! request with steps therefore has one share more than it has workers, and that share is the
//! submitter's. The request cannot conclude before the submitter has left.
//!
//! 1. A step becomes due when a worker calls [`Share::ask_step`], or when all workers have left and
//!    only the submitter's share remains. The descriptor of the request becomes readable, and a
//!    wait returns [`Waited::Step`](super::Waited::Step).
//! 2. The submitter calls [`Request::step`](super::Request::step). It clears the mark before it
//!    calls [`Task::step`], so that a step which becomes due meanwhile is not lost.
//! 3. [`Remaining`] says what follows: nothing (the submitter leaves), later steps, more workers,
//!    or the same step once more.
//! 4. After a failure or a cancellation, [`Task::step`] is not called again. The submitter leaves
//!    when its share is the only one left.

use std::any::Any;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::time::Instant;

use super::job::Job;
use super::tracker::Tracker;
use super::{NewJob, make_job};
use crate::engine::Engine;
use crate::error::{Error, Kind, Result};
use crate::file::position::Operation;
use crate::gpu::Context;
use crate::options::{MAX_THREADS, RouteName};
use crate::report::{self, Counters};
use crate::staging::Ring;

/// Work for the engine's workers: a plain transfer, or a task of another crate that consists of
/// several.
///
/// At most as many workers as the order names call [`serve`](Self::serve) at the same time. When
/// all of them have returned, the request concludes, once and on one thread: [`end`](Self::end) or
/// [`clean_up`](Self::clean_up). The task is dropped, with the files that it has open, before the
/// outcome is published.
pub trait Task: Send + Sync {
    /// One worker's share. Returns when this worker finds nothing left to do, or when
    /// [`Share::is_over`] is true before it takes further work, which another worker may then take.
    /// Nothing that it started then touches any memory.
    ///
    /// # Errors
    /// The first error of all workers is the outcome, and stops the others.
    fn serve(&self, share: &Share<'_>) -> Result<()>;

    /// Does the final work if all shares succeeded.
    ///
    /// # Errors
    /// An error is the outcome of the request.
    fn end(&self, _share: &Share<'_>) -> Result<()> {
        Ok(())
    }

    /// Undoes what a failed request must not leave behind.
    fn clean_up(&self) {}

    /// Adds to an error the name of the file, as the caller spells it.
    fn named(&self, error: Error) -> Error;

    /// The direction, for traces.
    fn operation(&self) -> Operation;

    /// Does what only the submitter's thread may do, such as calling HDF5. Returns what remains.
    ///
    /// [`Request::step`](super::Request::step) calls this when a worker has made a step due, and
    /// when all workers have left. It is not called again after [`Remaining::Nothing`] or an error,
    /// nor after the request was stopped.
    ///
    /// # Errors
    /// An error is the outcome of the request, and stops its workers.
    fn step(&self, _share: &Share<'_>) -> Result<Remaining> {
        Ok(Remaining::Nothing)
    }

    /// Releases what only the submitter's thread may release. Called once on that thread: after the
    /// last step or, if the request was stopped, when all workers have left. Not called if the
    /// submitter drops the request instead of taking its steps.
    fn end_steps(&self) {}
}

/// A task, and what the engine needs to make a request of it.
pub struct TaskOrder {
    /// What the workers do.
    pub task: Box<dyn Task>,
    /// The file that errors name.
    pub path: PathBuf,
    /// The most workers that can find work; at least 1.
    pub workers: usize,
    /// A context of the memory, if it is on a GPU.
    pub context: Option<Arc<Context>>,
    /// The route that the report names if nothing moves.
    pub requested: RouteName,
    /// The block that the report names, in bytes.
    pub block: u64,
    /// Whether the submitter takes steps: [`Task::step`].
    pub has_steps: bool,
    /// Whether a thread that waits for the request is one of its workers. Only for requests
    /// without steps, whose task asks [`Share::is_over`].
    pub waiter_shares: bool,
    /// Bytes of the caller that moved before the request was submitted.
    pub moved: u64,
    /// The path that these bytes took.
    pub moved_by: report::Path,
    /// Why the request does not follow its options.
    pub note: Option<String>,
}

impl TaskOrder {
    pub(super) fn into_job(
        self,
        engine: &'static Engine,
        owner: Option<Box<dyn Any + Send>>,
    ) -> NewJob {
        let lanes = self.workers.clamp(1, MAX_THREADS as usize);
        let tracker = Tracker {
            requested: self.requested,
            block: self.block,
            context: self.context,
            ..Tracker::new(self.path, Instant::now(), lanes, self.has_steps)
        };
        tracker.counters.moved(self.moved_by, self.moved);
        if let Some(note) = &self.note {
            tracker.counters.note(note);
        }
        make_job(engine, self.task, tracker, (lanes, None), None, owner)
    }
}

/// What is left to do after the submitter's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// No further step is needed.
    Nothing,
    /// Workers are busy. They make the next step due, at the latest when all of them have left.
    Steps,
    /// This thread cannot take the step now. The step is due again.
    Later,
    /// As [`Steps`](Self::Steps), with this many additional workers, since others left for lack of
    /// memory.
    Workers(usize),
}

/// A worker's view of the request that it serves.
pub struct Share<'a> {
    engine: &'static Engine,
    tracker: &'a Tracker,
    joined: Cell<bool>,
    /// When this worker has to return to its caller.
    end: Option<Instant>,
    is_cut: Cell<bool>,
}

impl<'a> Share<'a> {
    pub(super) fn new(engine: &'static Engine, tracker: &'a Tracker, end: Option<Instant>) -> Self {
        Share {
            engine,
            tracker,
            joined: Cell::new(false),
            end,
            is_cut: Cell::new(false),
        }
    }

    /// Whether workers should start no further work, because the request failed or was cancelled.
    pub fn stopping(&self) -> bool {
        self.tracker.progress.stopping()
    }

    /// Whether this worker should take no further work: the request is [`stopping`](Self::stopping), or
    /// this thread must return to its caller. Then another worker does the rest of the share.
    pub fn is_over(&self) -> bool {
        let is_late = self.end.is_some_and(|end| Instant::now() >= end);
        if is_late {
            self.is_cut.set(true);
        }
        is_late || self.stopping()
    }

    /// Whether [`is_over`](Self::is_over) has ended this share before the request was over. Another
    /// worker then does the rest, and is counted in place of this one.
    pub(super) fn is_passed_on(&self) -> bool {
        let is_passed_on = self.is_cut.get() && !self.stopping();
        if is_passed_on && self.joined.take() {
            self.tracker.counters.left();
        }
        is_passed_on
    }

    /// The counters of the request.
    pub fn counters(&self) -> &'a Counters {
        &self.tracker.counters
    }

    /// Notes that so many bytes of the ranges, in the order of the file, have arrived without a gap.
    pub(super) fn arrived(&self, bytes: u64) {
        self.tracker.arrived.fetch_max(bytes, AcqRel);
    }

    /// The ring of pinned slots.
    pub fn ring(&self) -> &'static Ring {
        &self.engine.ring
    }

    /// Counts this worker among those that found work. Further calls change nothing.
    pub fn joined(&self) {
        if !self.joined.replace(true) {
            self.tracker.counters.joined();
        }
    }

    /// Makes the submitter's step due.
    pub fn ask_step(&self) {
        self.tracker.ask_step();
    }
}

impl Job {
    /// Takes the submitter's step, if one is due. Calls `start` with the number of workers that the
    /// step adds. Returns false if the step cannot be taken now.
    pub(crate) fn step(self: &Arc<Self>, start: impl FnOnce(usize)) -> bool {
        let progress = &self.tracker.progress;
        self.tracker.signals.lower();
        if !progress.take_step() {
            return true;
        }
        let share = self.share();
        if !share.stopping() {
            match self.with_task(|task| task.step(&share)) {
                Ok(Remaining::Nothing) => {
                    self.end_steps();
                    return true;
                }
                Ok(Remaining::Steps) => {}
                Ok(Remaining::Later) => {
                    share.ask_step();
                    return false;
                }
                Ok(Remaining::Workers(count)) => {
                    progress.enter(count);
                    self.to_begin.fetch_add(count, Relaxed);
                    start(count);
                }
                Err(error) => progress.fail(error),
            }
        }
        if share.stopping() {
            // Workers that have not begun find nothing to do. The other workers make another step
            // due when they have left.
            self.leave(self.to_begin.swap(0, Relaxed));
            if progress.is_alone() {
                self.end_steps();
            }
        }
        true
    }

    /// Makes the submitter leave, together with the workers that have not begun.
    fn end_steps(&self) {
        if self.tracker.progress.end_steps() {
            // A panic changes nothing: the submitter leaves in any case.
            let _ = self.with_task(|task| {
                task.end_steps();
                Ok(())
            });
            self.leave(self.to_begin.swap(0, Relaxed) + 1);
        }
    }

    /// Makes the submitter leave without its steps, which stops the request. Workers may still be
    /// busy.
    pub(crate) fn give_up_steps(&self) {
        let progress = &self.tracker.progress;
        if progress.end_steps() {
            let dropped = Error::new(
                Kind::Cancelled,
                "the request was dropped before it was finished",
            );
            let _ = self.with_task(|task| {
                progress.fail(task.named(dropped));
                Ok(())
            });
            self.leave(self.to_begin.swap(0, Relaxed) + 1);
        }
    }
}
