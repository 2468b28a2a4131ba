//! The start of a request's workers, which may come from the caller or from a stream.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use super::job::Job;
use super::{carry_out, tasks, watch};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::gpu::Context;
use crate::gpu::stream::{Mark, Stream};

pub(super) struct Launch {
    engine: &'static Engine,
    lanes: usize,
    /// Taken by whoever starts or abandons it.
    job: Mutex<Option<Arc<Job>>>,
    /// What the start waits for where no thread could be had: whoever waits for the request looks
    /// at it and is its worker.
    waits_for: Mutex<Option<Arc<Mark>>>,
}

/// All that wait for a mark.
static LATE: Mutex<Vec<Weak<Launch>>> = Mutex::new(Vec::new());

/// Waits for the streams that requests without a thread come after, and carries these requests out.
/// For those who wait for several requests at once.
pub(super) fn begin_all() {
    let late = std::mem::take(&mut *lock(&LATE));
    for launch in late.iter().filter_map(Weak::upgrade) {
        launch.begin_here(None);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Launch {
    pub fn new(engine: &'static Engine, job: Arc<Job>, lanes: usize) -> Arc<Launch> {
        Arc::new(Launch {
            engine,
            lanes,
            job: Mutex::new(Some(job)),
            waits_for: Mutex::default(),
        })
    }

    fn take(&self) -> Option<Arc<Job>> {
        lock(&self.job).take()
    }

    pub fn has_begun(&self) -> bool {
        lock(&self.job).is_none()
    }

    /// Starts the workers, or is the only one where no thread can be had.
    pub fn begin(&self) {
        if let Some(job) = self.take() {
            let submitted = self
                .engine
                .workers
                .submit(tasks(job, self.lanes), self.lanes);
            carry_out(submitted);
        }
    }

    /// Begins when the work queued on the stream so far is done. Where no thread can be had, that
    /// is found by whoever waits for the request; with `holds`, when the stream is to wait for the
    /// request and nobody else may, it is waited for here.
    pub fn after(
        self: &Arc<Self>,
        stream: Stream,
        context: &Arc<Context>,
        holds: bool,
    ) -> Result<()> {
        if self.engine.workers.has_thread() {
            let launch = Arc::clone(self);
            // On a thread of the driver, which must not carry out the request: but there is one.
            let mark = stream.then(context, Box::new(move || launch.begin()))?;
            watch::watch(self, mark);
        } else if holds {
            stream.mark(context)?.wait()?;
            self.begin();
        } else {
            *lock(&self.waits_for) = Some(Arc::new(stream.mark(context)?));
            lock(&LATE).push(Arc::downgrade(self));
        }
        Ok(())
    }

    /// Begins here what waits for a mark, if the stream comes to it before `end`; without one it
    /// is waited for as long as it takes.
    pub fn begin_here(&self, end: Option<Instant>) {
        const A_MOMENT: Duration = Duration::from_micros(200);
        let Some(mark) = lock(&self.waits_for).clone() else {
            return;
        };
        // One that was cancelled waits for nothing.
        if self.has_begun() {
            *lock(&self.waits_for) = None;
            return;
        }
        let reached = loop {
            let reached = match end {
                None => mark.wait().map(|()| true),
                Some(_) => mark.reached(),
            };
            let is_over = end.is_none_or(|end| Instant::now() >= end);
            match reached {
                Ok(false) if !is_over && !self.has_begun() => std::thread::sleep(A_MOMENT),
                reached => break reached,
            }
        };
        match reached {
            Ok(false) => return,
            Ok(true) => self.begin(),
            Err(error) => self.abandon(error),
        }
        *lock(&self.waits_for) = None;
    }

    /// Ends a request whose workers have not begun, and now never will.
    pub fn abandon(&self, error: Error) {
        if let Some(job) = self.take() {
            job.tracker.progress.fail(error);
            job.serve();
        }
    }
}
