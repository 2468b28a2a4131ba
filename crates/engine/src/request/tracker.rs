//! The submitter's view of a request: its progress, its outcome, its counters. It outlives the job,
//! which has the file and the plan.

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
    /// The route in the options.
    pub requested: RouteName,
    pub block: u64,
    /// A context of the request's GPU memory.
    pub context: Option<Arc<Context>>,
    /// Bytes of the ranges, in the order of the file, that have arrived without a gap.
    pub(super) arrived: AtomicU64,
    /// Nanoseconds from submission to the end; 0 until then.
    pub(super) elapsed: AtomicU64,
    /// Nanoseconds that the submitter spent on the request before it submitted it.
    pub(super) before: AtomicU64,
}

impl Tracker {
    /// With `has_steps`, the submitter has a share besides those of the workers.
    pub(crate) fn new(
        path: PathBuf,
        submitted: Instant,
        workers: usize,
        has_steps: bool,
    ) -> Tracker {
        Tracker {
            progress: if has_steps {
                Progress::with_steps(workers)
            } else {
                Progress::new(workers)
            },
            counters: Counters::default(),
            signals: Signals::default(),
            path,
            submitted,
            requested: RouteName::Auto,
            block: 0,
            context: None,
            arrived: AtomicU64::new(0),
            elapsed: AtomicU64::new(0),
            before: AtomicU64::new(0),
        }
    }

    /// Stops the clock, publishes the outcome, and signals descriptor and streams.
    pub(crate) fn finish(&self) {
        let elapsed = self.submitted.elapsed().as_nanos() as u64;
        self.elapsed.store(elapsed.max(1), Relaxed);
        self.progress.finish();
        self.signals.fire();
    }

    /// Counts the time of the request from `began`.
    pub(crate) fn count_from(&self, began: Instant) {
        let before = self.submitted.saturating_duration_since(began);
        self.before.store(before.as_nanos() as u64, Relaxed);
    }

    /// Makes the submitter's step due, and the descriptor readable.
    pub(crate) fn ask_step(&self) {
        self.progress.ask_step();
        self.signals.raise();
    }

    pub(crate) fn report(&self) -> Report {
        let elapsed = match self.elapsed.load(Relaxed) {
            0 => self.submitted.elapsed().as_nanos() as u64,
            finished => finished,
        };
        let elapsed = elapsed + self.before.load(Relaxed);
        let device = self.context.as_ref().map_or(-1, |context| context.device);
        self.counters
            .report(self.requested, device, self.block, elapsed)
    }
}
