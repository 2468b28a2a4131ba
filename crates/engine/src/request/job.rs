//! A submitted task: what its workers share, and how the last of them concludes it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Instant;

use super::progress::Waited;
use super::task::{Share, Task};
use super::tracker::Tracker;
use crate::changes::Changing;
use crate::engine::Engine;
use crate::error::{Error, Kind, Result};
use crate::file::turns::Turns;
use crate::in_flight::{InFlight, Round};
use crate::sync::Recover;
use crate::trace;

pub(crate) struct Job {
    pub engine: &'static Engine,
    /// The work of the request. `None` once the request has already concluded, so that late workers keep no
    /// file open.
    pub task: RwLock<Option<Box<dyn Task>>>,
    pub tracker: Arc<Tracker>,
    /// Workers that have not begun and are still wanted.
    pub to_begin: AtomicUsize,
    /// Where the workers wait for their turn, and how many are to be at work at the same time.
    pub turns: Option<(Arc<Turns>, usize)>,
    /// Whether the submitter has a share of the work.
    pub has_steps: bool,
    /// The counters that the request has entered, each with the round, until it is finished.
    pub entered: [Option<(Arc<InFlight>, Round)>; 3],
    /// Present until no worker touches files any more.
    pub changing: Mutex<Option<Changing>>,
    /// The owner of the buffers, kept until no worker touches them any more.
    pub owner: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job {
    /// The GPU of the memory; `None` for host memory.
    pub(crate) fn device(&self) -> Option<i32> {
        let context = self.tracker.context.as_ref();
        context.map(|context| context.device)
    }

    pub(crate) fn share(&self) -> Share<'_> {
        Share::new(self.engine, &self.tracker, None)
    }

    /// Does one worker's share. The last worker to leave concludes the request. It does not wait
    /// for workers that have not begun, which may be busy with other requests for a long time: they
    /// find no work left.
    pub(crate) fn serve(self: &Arc<Self>) {
        self.serve_until(None);
    }

    /// As [`serve`](Self::serve), at most until `end`. Returns true if a worker must be found for the
    /// rest of the share.
    pub(crate) fn serve_until(self: &Arc<Self>, end: Option<Instant>) -> bool {
        let begins = |n: usize| n.checked_sub(1);
        // What the worker of a share did before it passed the share on precedes the rest.
        if self
            .to_begin
            .fetch_update(Acquire, Relaxed, begins)
            .is_err()
        {
            return false;
        }
        let share = Share::new(self.engine, &self.tracker, end);
        match self.with_task(|task| task.serve(&share)) {
            Ok(()) if share.is_passed_on() => {
                self.to_begin.fetch_add(1, Release);
                return true;
            }
            Ok(()) => {}
            Err(error) => self.tracker.progress.fail(error),
        }
        // In a request with steps, a worker may also leave for lack of memory while other workers
        // are busy. The submitter's last step then determines that no work is left.
        let needless = if self.has_steps {
            0
        } else {
            self.to_begin.swap(0, Acquire)
        };
        self.leave(needless + 1);
        false
    }

    /// Calls `act` with the task. The caller's own share must not have been left. Adds the file's
    /// name to errors, and turns a panic into an error.
    pub(crate) fn with_task<T>(&self, act: impl FnOnce(&dyn Task) -> Result<T>) -> Result<T> {
        let task = self.task.read().recover();
        let Some(task) = &*task else {
            return Err(Error::new(
                Kind::Internal,
                "the request has already concluded",
            ));
        };
        match catch_unwind(AssertUnwindSafe(|| act(&**task))) {
            Ok(done) => done.map_err(|error| task.named(error)),
            Err(panic) => Err(Error::panicked(&*panic)),
        }
    }

    /// Lets workers leave.
    pub(crate) fn leave(&self, workers: usize) {
        for _ in 0..workers {
            if self.tracker.progress.leave() {
                self.conclude();
            }
        }
        if matches!(self.tracker.progress.now(), Waited::Step) {
            self.tracker.signals.raise();
        }
    }

    fn conclude(&self) {
        let task = self.task.write().recover().take();
        let Some(task) = task else { return };
        let stopped = self.tracker.progress.seal();
        let ending = catch_unwind(AssertUnwindSafe(|| match &stopped {
            None => {
                // Bytes that went to memory of a context that is gone may have gone anywhere.
                let context = self.tracker.context.as_ref();
                context.map_or(Ok(()), |context| context.must_be_alive())?;
                task.end(&self.share())
            }
            Some(_) => {
                task.clean_up();
                Ok(())
            }
        }));
        match ending {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                task.clean_up();
                self.tracker.progress.fail(task.named(error));
            }
            Err(panic) => {
                task.clean_up();
                self.tracker.progress.fail(Error::panicked(&*panic));
            }
        }
        let operation = task.operation();
        let owner = self.owner.lock().recover().take();
        // A finished request has no file open: a duplicate of HDF5's descriptor would keep HDF5's
        // lock. The owner runs code of the submitter. The request must finish even if that panics.
        let _ = catch_unwind(AssertUnwindSafe(|| drop((task, owner))));
        let tracker = &self.tracker;
        trace::request(operation, tracker.submitted, tracker.counters.total());
        drop(self.changing.lock().recover().take());
        tracker.finish();
        for (requests, round) in self.entered.iter().flatten() {
            requests.leave(*round);
        }
    }
}
