//! The start of a request's workers, by the caller or by a stream.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::job::Job;
use super::{carry_out, enqueue, tasks, watch};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::gpu::Context;
use crate::gpu::stream::{Mark, Stream};
use crate::sync::Recover;

pub(super) struct Launch {
    engine: &'static Engine,
    lanes: usize,
    /// `None` once the launch was started or abandoned.
    job: Mutex<Option<Arc<Job>>>,
    /// The mark that the start waits for if no thread could be started. A thread that waits for the
    /// request then waits for the mark, and serves as the request's worker.
    waits_for: Mutex<Option<Arc<Mark>>>,
    /// The job, while the thread that waits for the request is to be one of its workers.
    share_of_waiter: Mutex<Option<Arc<Job>>>,
}

/// The launches that wait for a mark or for a share of the waiter.
struct Late {
    /// The launches, by address.
    launches: BTreeMap<usize, Weak<Launch>>,
    /// The number of threads that wait for several requests at once.
    drains: usize,
}

static LATE: Mutex<Late> = Mutex::new(Late {
    launches: BTreeMap::new(),
    drains: 0,
});

/// A wait for several requests at once. While one exists, no request leaves a share to its waiter:
/// the waiter may be another thread, and may not wait yet.
pub(super) struct Drain(());

impl Drain {
    /// Carries out all requests for which no thread could be started, after the streams that they
    /// wait for. Carries out the shares that waiters have not begun, too.
    pub(super) fn begin() -> Drain {
        let late = {
            let mut late = LATE.lock().recover();
            late.drains += 1;
            std::mem::take(&mut late.launches)
        };
        let drain = Drain(());
        for launch in late.values().filter_map(Weak::upgrade) {
            launch.begin_here(None);
        }
        drain
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        LATE.lock().recover().drains -= 1;
    }
}

impl Launch {
    pub(crate) fn new(engine: &'static Engine, job: Arc<Job>, lanes: usize) -> Arc<Launch> {
        Arc::new(Launch {
            engine,
            lanes,
            job: Mutex::new(Some(job)),
            waits_for: Mutex::default(),
            share_of_waiter: Mutex::default(),
        })
    }

    fn take(&self) -> Option<Arc<Job>> {
        self.job.lock().recover().take()
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.job.lock().recover().is_none()
    }

    /// Starts the workers, or serves the request on this thread if none can be started.
    pub(crate) fn begin(&self) {
        if let Some(job) = self.take() {
            let (turns, device) = (job.turns.clone(), job.device());
            let tasks = tasks(job, self.lanes);
            let tasks = match turns {
                Some((turns, most)) => turns.admit(tasks, most),
                None => tasks,
            };
            if !tasks.is_empty() {
                carry_out(self.engine.workers.submit(tasks, self.lanes, device));
            }
        }
    }

    /// As [`begin`](Self::begin), with the thread that waits for the request as one of the workers.
    /// That thread need not be woken, and its caches hold the caller's memory.
    pub(crate) fn begin_with_waiter(self: &Arc<Self>) {
        let Some(job) = self.take() else { return };
        *self.share_of_waiter.lock().recover() = Some(Arc::clone(&job));
        let is_drained = self.list_late();
        let others = self.lanes - 1;
        if others > 0 {
            // If no thread can be started, the waiter does all the work.
            let _ = enqueue(&job, others, self.lanes);
        }
        if is_drained {
            self.begin_with_workers();
        }
    }

    /// Adds this launch to the list of late ones. Returns whether a thread waits for several
    /// requests already.
    fn list_late(self: &Arc<Self>) -> bool {
        let mut late = LATE.lock().recover();
        let address = Arc::as_ptr(self).addr();
        late.launches.insert(address, Arc::downgrade(self));
        late.drains > 0
    }

    /// Lets a worker do the waiter's share, because a thread that only polls the request may never
    /// wait for it.
    pub(crate) fn begin_with_workers(self: &Arc<Self>) {
        self.share_here(Some(Instant::now()));
    }

    /// Does the waiter's share on this thread until `end`, and hands the rest to a worker.
    fn share_here(self: &Arc<Self>, end: Option<Instant>) {
        let Some(job) = self.share_of_waiter.lock().recover().take() else {
            return;
        };
        LATE.lock()
            .recover()
            .launches
            .remove(&Arc::as_ptr(self).addr());
        let is_late = end.is_some_and(|end| end <= Instant::now());
        if is_late || job.serve_until(end) {
            carry_out(enqueue(&job, 1, self.lanes));
        }
    }

    /// Begins when the work queued on the stream so far is done.
    ///
    /// If no thread can be started, a thread that waits for the request begins it. With
    /// `stream_waits`, perhaps only the stream waits for the request, so this call waits for the
    /// stream and begins the request itself.
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
            *self.waits_for.lock().recover() = Some(Arc::new(stream.mark(context)?));
            self.list_late();
        }
        Ok(())
    }

    /// Does the waiter's share. Begins a launch that waits for a mark, if the stream reaches the mark
    /// before `end`; without `end`, waits for the mark as long as it takes.
    pub(crate) fn begin_here(self: &Arc<Self>, end: Option<Instant>) {
        const INTERVAL: Duration = Duration::from_micros(200);
        self.share_here(end);
        let Some(mark) = self.waits_for.lock().recover().clone() else {
            return;
        };
        // A cancelled request has nothing to wait for.
        if self.has_begun() {
            self.wait_no_longer();
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
        self.wait_no_longer();
    }

    fn wait_no_longer(&self) {
        *self.waits_for.lock().recover() = None;
        LATE.lock()
            .recover()
            .launches
            .remove(&std::ptr::from_ref(self).addr());
    }

    /// Fails a request whose workers have not begun, and keeps them from beginning.
    pub(crate) fn abandon(self: &Arc<Self>, error: Error) {
        // A stopped request has no work left for the waiter, but the waiter's share must be left.
        self.share_here(None);
        if let Some(job) = self.take() {
            job.tracker.progress.fail(error);
            job.serve();
        }
    }
}
