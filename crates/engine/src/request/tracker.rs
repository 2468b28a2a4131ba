//! What remains of a request for its submitter: how far it is, how it ended, what it did. It
//! outlives the job, which holds the file and the plan.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::progress::Progress;
use super::signal::Signals;
use crate::error::Error;
use crate::gpu::Context;
use crate::options::RouteName;
use crate::report::{Counters, Report};

pub(crate) struct Tracker {
    pub progress: Progress<Error>,
    pub counters: Counters,
    pub signals: Signals,
    pub path: PathBuf,
    pub submitted: Instant,
    /// The route that was asked for.
    pub asked: RouteName,
    pub block: u64,
    /// CUDA ordinal of the memory, -1 for host memory only.
    pub device: i32,
    /// A context of the request's GPU memory.
    pub context: Option<Arc<Context>>,
    /// Nanoseconds from submission to the end; 0 before.
    elapsed: AtomicU64,
    /// Nanoseconds that the submitter spent on the request before.
    before: AtomicU64,
}

impl Tracker {
    pub fn new(path: PathBuf, submitted: Instant, progress: Progress<Error>) -> Tracker {
        Tracker {
            progress,
            counters: Counters::default(),
            signals: Signals::default(),
            path,
            submitted,
            asked: RouteName::Auto,
            block: 0,
            device: -1,
            context: None,
            elapsed: AtomicU64::new(0),
            before: AtomicU64::new(0),
        }
    }

    /// Stops the clock, publishes the outcome and tells whoever asked.
    pub fn finish(&self) {
        let elapsed = self.submitted.elapsed().as_nanos() as u64;
        self.elapsed.store(elapsed.max(1), Relaxed);
        self.progress.finish();
        self.signals.fire();
    }

    /// Counts the time of the request from an earlier moment on.
    pub fn count_from(&self, began: Instant) {
        let before = self.submitted.saturating_duration_since(began);
        self.before.store(before.as_nanos() as u64, Relaxed);
    }

    /// Asks for the submitter's turn and tells event loops.
    pub fn ask_turn(&self) {
        self.progress.ask_turn();
        self.signals.tell();
    }

    pub fn report(&self) -> Report {
        let elapsed = match self.elapsed.load(Relaxed) {
            0 => self.submitted.elapsed().as_nanos() as u64,
            finished => finished,
        };
        let elapsed = elapsed + self.before.load(Relaxed);
        self.counters
            .report(self.asked, self.device, self.block, elapsed)
    }
}
