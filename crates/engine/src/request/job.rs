//! A submitted duty: what its workers share, and how the last of them concludes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

use super::duty::{Duty, Share};
use super::progress::Waited;
use super::tracker::Tracker;
use crate::engine::Engine;
use crate::error::{Error, Kind, Result};
use crate::in_flight::{REQUESTS, Round, WITHOUT_TURNS};
use crate::trace;

pub(crate) struct Job {
    pub engine: &'static Engine,
    /// Until the request has concluded: tasks that workers come to later find nothing, and hold
    /// no file open.
    pub duty: RwLock<Option<Box<dyn Duty>>>,
    pub tracker: Arc<Tracker>,
    /// Workers that have not begun and are still wanted.
    pub to_begin: AtomicUsize,
    /// The submitter has a share of the work.
    pub has_turns: bool,
    /// Its rounds in [`REQUESTS`], and in [`WITHOUT_TURNS`] if it has none.
    pub entered: Round,
    pub without_turns: Option<Round>,
    /// What must stay alive until no worker touches the buffers: the submitter's keepalive.
    pub owner: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job {
    pub fn share(&self) -> Share<'_> {
        Share::new(self.engine, &self.tracker)
    }

    /// One worker's share: until nothing is left to take on, an error, or a cancellation. The last
    /// worker to come out concludes the request. It does not wait for workers that have not
    /// begun, which may be long in the service of other requests: they find nothing left to do.
    pub fn serve(self: &Arc<Self>) {
        let begins = |n: usize| n.checked_sub(1);
        if self
            .to_begin
            .fetch_update(Relaxed, Relaxed, begins)
            .is_err()
        {
            return;
        }
        if let Err(error) = self.on_duty(|duty| duty.serve(&self.share())) {
            self.tracker.progress.fail(error);
        }
        // With turns, a worker also leaves for want of room, while there is work for others; the
        // submitter's last turn says when there is none.
        let needless = match self.has_turns {
            true => 0,
            false => self.to_begin.swap(0, Relaxed),
        };
        self.leave(needless + 1);
    }

    /// Does something with the duty, on behalf of one who has a share that is not left. A failure
    /// names the file.
    pub fn on_duty<T>(&self, act: impl FnOnce(&dyn Duty) -> Result<T>) -> Result<T> {
        let duty = self.duty.read().unwrap_or_else(|e| e.into_inner());
        let Some(duty) = &*duty else {
            return Err(Error::new(Kind::Internal, "the request has concluded"));
        };
        match catch_unwind(AssertUnwindSafe(|| act(&**duty))) {
            Ok(done) => done.map_err(|error| duty.named(error)),
            Err(panic) => Err(Error::panicked(&*panic)),
        }
    }

    /// So many workers are done.
    pub fn leave(&self, workers: usize) {
        for _ in 0..workers {
            if self.tracker.progress.leave() {
                self.conclude();
            }
        }
        if matches!(self.tracker.progress.now(), Waited::Turn) {
            self.tracker.signals.tell();
        }
    }

    fn conclude(&self) {
        let duty = self.duty.write().unwrap_or_else(|e| e.into_inner()).take();
        let Some(duty) = duty else { return };
        let stopped = self.tracker.progress.seal();
        let ending = catch_unwind(AssertUnwindSafe(|| match &stopped {
            None => duty.end(&self.share()),
            Some(_) => {
                duty.clean_up();
                Ok(())
            }
        }));
        match ending {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                duty.clean_up();
                self.tracker.progress.fail(duty.named(error));
            }
            Err(panic) => {
                duty.clean_up();
                self.tracker.progress.fail(Error::panicked(&*panic));
            }
        }
        let owner = self.owner.lock().unwrap_or_else(|e| e.into_inner()).take();
        // The submitter's own code; whatever it does, the request must finish.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(owner)));
        let tracker = &self.tracker;
        trace::request(
            duty.operation(),
            tracker.submitted,
            tracker.counters.total(),
        );
        tracker.finish();
        duty.finished();
        REQUESTS.leave(self.entered);
        if let Some(entered) = self.without_turns {
            WITHOUT_TURNS.leave(entered);
        }
    }
}
