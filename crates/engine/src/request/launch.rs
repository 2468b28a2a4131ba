//! The start of a request's workers, by the caller or by a stream.

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
    /// `None` once somebody has started or abandoned it.
    job: Mutex<Option<Arc<Job>>>,
    /// What the start waits for if no thread could be started: then whoever waits for the request
    /// waits for the mark and is the request's worker.
    waits_for: Mutex<Option<Arc<Mark>>>,
}

/// All launches that wait for a mark.
static LATE: Mutex<Vec<Weak<Launch>>> = Mutex::new(Vec::new());

/// Carries out all requests that no thread could be started for, after the streams that they wait
/// for. Called before a wait for several requests at once.
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
    pub(crate) fn new(engine: &'static Engine, job: Arc<Job>, lanes: usize) -> Arc<Launch> {
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

    pub(crate) fn has_begun(&self) -> bool {
        lock(&self.job).is_none()
    }

    /// Starts the workers, or serves the request on this thread if none can be started.
    pub(crate) fn begin(&self) {
        if let Some(job) = self.take() {
            let submitted = self
                .engine
                .workers
                .submit(tasks(job, self.lanes), self.lanes);
            carry_out(submitted);
        }
    }

    /// Begins when the work queued on the stream so far is done. If no thread can be started, whoever
    /// waits for the request begins it; with `stream_waits`, when perhaps only the stream waits for
    /// the request, this call waits for the stream and begins it.
    pub(crate) fn after(
        self: &Arc<Self>,
        stream: Stream,
        context: &Arc<Context>,
        stream_waits: bool,
    ) -> Result<()> {
        if self.engine.workers.has_thread() {
            let launch = Arc::clone(self);
            // This runs on a thread of the driver, which must not carry out the request. A worker
            // does.
            let mark = stream.then(context, Box::new(move || launch.begin()))?;
            watch::watch(self, mark);
        } else if stream_waits {
            stream.mark(context)?.wait()?;
            self.begin();
        } else {
            *lock(&self.waits_for) = Some(Arc::new(stream.mark(context)?));
            lock(&LATE).push(Arc::downgrade(self));
        }
        Ok(())
    }

    /// Begins a launch that waits for a mark, if the stream reaches the mark before `end`; without
    /// `end`, waits for the mark as long as it takes.
    pub(crate) fn begin_here(&self, end: Option<Instant>) {
        const INTERVAL: Duration = Duration::from_micros(200);
        let Some(mark) = lock(&self.waits_for).clone() else {
            return;
        };
        // A request that was cancelled waits for nothing.
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
                Ok(false) if !is_over && !self.has_begun() => std::thread::sleep(INTERVAL),
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

    /// Fails a request whose workers have not begun, so that they never do.
    pub(crate) fn abandon(&self, error: Error) {
        if let Some(job) = self.take() {
            job.tracker.progress.fail(error);
            job.serve();
        }
    }
}
