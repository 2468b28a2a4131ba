//! What a request does, seen from the workers that serve it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::job::Job;
use super::tracker::Tracker;
use crate::engine::Engine;
use crate::error::{Error, Kind, Result};
use crate::file::position::Operation;
use crate::report::Counters;
use crate::staging::Ring;

/// Work for the engine's workers: a plain transfer, or what another crate makes of several.
///
/// As many workers as were asked for, or fewer, call [`serve`](Self::serve), all at the same time.
/// When all of them have returned, the request concludes: on one thread, once.
pub trait Duty: Send + Sync {
    /// One worker's share. Returns when nothing is left that this worker could take on, or when
    /// [`Share::stopping`] says so; then nothing that it started touches any memory.
    fn serve(&self, share: &Share<'_>) -> Result<()>;

    /// What comes last, when all shares went well.
    fn end(&self, _share: &Share<'_>) -> Result<()> {
        Ok(())
    }

    /// Undoes what must not stay of a request that failed.
    fn clean_up(&self) {}

    /// An error with the name of the file that the caller knows.
    fn named(&self, error: Error) -> Error;

    fn operation(&self) -> Operation;

    /// What only the submitter's thread may do, such as calling HDF5. Called by
    /// [`Request::turn`](super::Request::turn) when a worker has asked for it, and when all workers
    /// have left; says what remains. Never called again after `Remaining::Nothing`, an error, or
    /// when the request was stopped.
    fn turn(&self, _share: &Share<'_>) -> Result<Remaining> {
        Ok(Remaining::Nothing)
    }

    /// Gives back what only the submitter's thread may give back. Called once, on that thread,
    /// after the last turn; of a request that was stopped, after all workers have left. Not called
    /// if the submitter drops the request instead of taking its turns.
    fn end_turns(&self) {}

    /// The outcome was published: all that the duty holds, such as files, is let go.
    fn finished(self: Box<Self>) {}
}

/// What is left to do after the submitter's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// No further turn is needed.
    Nothing,
    /// Workers are at it; a turn will be asked for, at the latest when all of them have left.
    Turns,
    /// As `Turns`, but so many more workers are needed, as others left for want of room.
    Workers(usize),
}

/// A worker's view of the request that it serves.
pub struct Share<'a> {
    engine: &'static Engine,
    tracker: &'a Tracker,
    joined: Cell<bool>,
}

impl<'a> Share<'a> {
    pub(super) fn new(engine: &'static Engine, tracker: &'a Tracker) -> Self {
        Share {
            engine,
            tracker,
            joined: Cell::new(false),
        }
    }

    /// Whether workers should take nothing more on: the request failed or was cancelled.
    pub fn stopping(&self) -> bool {
        self.tracker.progress.stopping()
    }

    pub fn counters(&self) -> &'a Counters {
        &self.tracker.counters
    }

    pub fn ring(&self) -> &'static Ring {
        &self.engine.ring
    }

    /// This worker has found something to do.
    pub fn joined(&self) {
        if !self.joined.replace(true) {
            self.tracker.counters.joined();
        }
    }

    /// Asks for the submitter's turn.
    pub fn ask_turn(&self) {
        self.tracker.ask_turn();
    }
}

impl Job {
    /// The submitter's turn, if it was asked for. More workers than the request has left are given
    /// to `start`.
    pub fn turn(self: &Arc<Self>, start: impl FnOnce(usize)) {
        let progress = &self.tracker.progress;
        self.tracker.signals.quiet();
        if !progress.take_turn() {
            return;
        }
        let share = self.share();
        if !share.stopping() {
            match self.on_duty(|duty| duty.turn(&share)) {
                Ok(Remaining::Nothing) => return self.end_turns(),
                Ok(Remaining::Turns) => {}
                Ok(Remaining::Workers(count)) => {
                    progress.enter(count);
                    self.to_begin.fetch_add(count, Relaxed);
                    start(count);
                }
                Err(error) => progress.fail(error),
            }
        }
        if share.stopping() {
            // Those who have not begun find nothing to do; the others ask for the turn again when
            // they have left.
            self.leave(self.to_begin.swap(0, Relaxed));
            if progress.is_alone() {
                self.end_turns();
            }
        }
    }

    /// The submitter leaves, and with it the workers that have not begun.
    fn end_turns(&self) {
        if self.tracker.progress.end_turns() {
            // Nothing comes of a failure: what was to be given back is given back.
            let _ = self.on_duty(|duty| {
                duty.end_turns();
                Ok(())
            });
            self.leave(self.to_begin.swap(0, Relaxed) + 1);
        }
    }

    /// The submitter leaves without having taken its turns. Workers may still be at it.
    pub fn give_turns_up(&self) {
        let progress = &self.tracker.progress;
        if progress.end_turns() {
            let dropped = Error::new(
                Kind::Cancelled,
                "the request was dropped before it was finished",
            );
            let _ = self.on_duty(|duty| {
                progress.fail(duty.named(dropped));
                Ok(())
            });
            self.leave(self.to_begin.swap(0, Relaxed) + 1);
        }
    }
}
