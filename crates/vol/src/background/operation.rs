//! One operation that goes on after its call has returned, seen by whoever waits for it.
//!
//! Its bytes are moved by the engine's workers, or it comes after others whose bytes are. What of it
//! needs HDF5 is done by threads that call HDF5, in [`wait`](Operation::wait) and its siblings.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::refuse_fork;
use penstock_engine::request::{Request, Waited};
use penstock_sys::hdf5::connector::*;

use super::journal::since_epoch;
use super::lend::Loan;
use super::visit::is_visiting;
use penstock_hdf5::transfer::conflicts::{Effort, Failures, Left, Pending, Shared};

pub struct Operation {
    /// As the application knows it.
    pub call: &'static CStr,
    /// Microseconds since the epoch, as event sets count.
    begun: u64,
    since: Instant,
    /// Where a failure goes if nobody asks for the outcome.
    later: Option<Arc<Failures>>,
    work: Mutex<Work>,
    /// A thread is at it, further up in this very call.
    is_busy: AtomicBool,
    ending: OnceLock<Ending>,
    notices: Mutex<Vec<Notice>>,
    /// How the operation leaves the pending ones.
    leave: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

// SAFETY: what is not `Send` or `Sync` inside, identifiers, objects of HDF5 and what calls it, is used
// and dropped by threads inside a call of HDF5 only, which lets one of them in at a time.
unsafe impl Send for Operation {}
// SAFETY: as above.
unsafe impl Sync for Operation {}

/// What there is to do.
pub enum Work {
    /// Nothing has begun.
    Queued(Queued),
    Moving(Moving),
    /// To be done by a thread inside HDF5 when the others are finished.
    After(Vec<Shared>, Box<dyn FnOnce() -> Result<()>>),
    Done,
}

/// Transfers that are ready, and the identifiers by which their turns call HDF5.
pub struct Queued {
    /// Begins them. Needs no HDF5.
    pub begin: Box<dyn FnOnce() -> Begun>,
    pub loans: Vec<Loan>,
}

#[derive(Default)]
pub struct Begun {
    pub requests: Vec<Arc<Request>>,
    /// Why others did not begin.
    pub failed: Option<Error>,
}

/// Transfers under way.
#[derive(Default)]
pub struct Moving {
    pub begun: Begun,
    pub loans: Vec<Loan>,
}

impl Queued {
    pub fn begin(self) -> Moving {
        Moving {
            begun: (self.begin)(),
            loans: self.loans,
        }
    }
}

impl Moving {
    /// Waits for the transfers, and takes their turns.
    pub fn finish(self) -> Result<()> {
        let ends = self.begun.requests.iter().map(|request| request.finish());
        let failed = self.begun.failed.map_or(Ok(()), Err);
        ends.fold(failed, Result::and)
    }
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Succeeded,
    Failed(Error),
    Cancelled,
}

struct Ending {
    outcome: Outcome,
    took: Duration,
}

/// Who is told of the end.
struct Notice {
    call: unsafe extern "C" fn(ctx: *mut c_void, status: H5VL_request_status_t) -> i32,
    context: *mut c_void,
}

/// What a thread can do next.
enum Step {
    Move(Vec<Arc<Request>>, Option<Error>),
    WaitFor(Vec<Shared>),
    Nothing,
}

impl Outcome {
    pub fn status(&self) -> H5VL_request_status_t {
        match self {
            Outcome::Succeeded => H5VL_REQUEST_STATUS_SUCCEED,
            Outcome::Failed(_) => H5VL_REQUEST_STATUS_FAIL,
            Outcome::Cancelled => H5VL_REQUEST_STATUS_CANCELED,
        }
    }
}

impl From<Result<()>> for Outcome {
    fn from(result: Result<()>) -> Outcome {
        match result {
            Ok(()) => Outcome::Succeeded,
            Err(error) if error.kind() == Kind::Cancelled => Outcome::Cancelled,
            Err(error) => Outcome::Failed(error),
        }
    }
}

impl Operation {
    pub fn new(call: &'static CStr, later: Option<Arc<Failures>>, work: Work) -> Arc<Operation> {
        let operation = Arc::new(Operation {
            call,
            begun: since_epoch(),
            since: Instant::now(),
            later,
            work: Mutex::new(work),
            is_busy: AtomicBool::new(false),
            ending: OnceLock::new(),
            notices: Mutex::default(),
            leave: OnceLock::new(),
        });
        match &*operation.work() {
            Work::Queued(Queued { loans, .. }) | Work::Moving(Moving { loans, .. }) => {
                loans.iter().for_each(|loan| loan.is_used_by(&operation));
            }
            Work::After(..) | Work::Done => {}
        }
        operation
    }

    /// What takes it out of the pending ones when it has ended.
    pub fn leaves_by(&self, leave: Box<dyn Fn() + Send + Sync>) {
        let _ = self.leave.set(leave);
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        self.ending.get().map(|ending| &ending.outcome)
    }

    /// When it began, in microseconds since the epoch, and the nanoseconds that it took, so far if it
    /// is not finished.
    pub fn times(&self) -> (u64, u64) {
        let took = self
            .ending
            .get()
            .map_or_else(|| self.since.elapsed(), |e| e.took);
        (self.begun, took.as_nanos() as u64)
    }

    /// Does what only this thread can do, and waits for the rest, at most as long as `limit`: without
    /// one as long as it takes.
    pub fn wait(self: &Arc<Self>, limit: Option<Duration>) -> Option<&Outcome> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let left = || end.map(|end| end.saturating_duration_since(Instant::now()));
        let effort = match limit.is_some() && is_visiting() {
            true => Effort::Bytes,
            false => Effort::All,
        };
        self.proceed(&left, effort)
    }

    fn proceed(self: &Arc<Self>, left: Left<'_>, effort: Effort) -> Option<&Outcome> {
        if self.ending.get().is_none() && !self.is_busy.swap(true, Relaxed) {
            self.advance(left, effort);
            self.is_busy.store(false, Relaxed);
        }
        self.outcome()
    }

    /// Waits until it has ended, unless it is this thread that is at it, or what HDF5 is to do cannot be
    /// done now: what was called before is under way for itself.
    pub fn settle(self: &Arc<Self>) {
        match is_visiting() {
            true => {
                self.proceed(&|| None, Effort::Bytes);
            }
            false => {
                self.wait(None);
            }
        }
    }

    fn advance(self: &Arc<Self>, left: Left<'_>, effort: Effort) {
        match self.step(effort) {
            Step::Move(requests, failed) => {
                if let Some(outcome) = move_all(&requests, left) {
                    self.end(failed.map_or(outcome, Err).into());
                }
            }
            Step::WaitFor(others) => {
                let is_over = |other: &Shared| Arc::clone(other).go_on(left, effort);
                if others.iter().all(is_over) {
                    let work = std::mem::replace(&mut *self.work(), Work::Done);
                    if let Work::After(_, act) = work {
                        self.end(act().into());
                    }
                }
            }
            Step::Nothing => {}
        }
    }

    fn step(&self, effort: Effort) -> Step {
        let mut work = self.work();
        if effort != Effort::Begun {
            begin(&mut work);
        }
        match &*work {
            Work::Queued(_) => Step::Nothing,
            Work::Moving(Moving { begun, .. }) => {
                Step::Move(begun.requests.clone(), begun.failed.clone())
            }
            Work::After(others, _) => match effort {
                Effort::Bytes => Step::Nothing,
                Effort::Begun if is_visiting() => Step::Nothing,
                _ => Step::WaitFor(others.clone()),
            },
            Work::Done => Step::Nothing,
        }
    }

    fn end(&self, outcome: Outcome) {
        let status = outcome.status();
        if let (Some(later), Outcome::Failed(error)) = (&self.later, &outcome) {
            later.add(error.clone());
        }
        let took = self.since.elapsed();
        let _ = self.ending.set(Ending { outcome, took });
        let work = std::mem::replace(&mut *self.work(), Work::Done);
        match refuse_fork() {
            // Closing the identifiers comes back to this connector.
            Ok(()) => drop(work),
            // Buffers and files are the parent's, whose threads use them.
            Err(_) => std::mem::forget(work),
        }
        if let Some(leave) = self.leave.get() {
            leave();
        }
        let notices = std::mem::take(&mut *self.notices.lock().unwrap_or_else(|e| e.into_inner()));
        for notice in notices {
            // SAFETY: whoever asked to be told has given a function for this, and its context.
            unsafe { (notice.call)(notice.context, status) };
        }
    }

    /// Tells `call` of the end, now if it is past.
    ///
    /// # Safety
    /// `call` may be called with `context` until it has been, on any thread inside HDF5.
    pub unsafe fn notify(&self, call: H5VL_request_notify_t, context: *mut c_void) {
        let Some(call) = call else { return };
        match self.outcome() {
            // SAFETY: passed on.
            Some(outcome) => unsafe {
                call(context, outcome.status());
            },
            None => {
                let mut notices = self.notices.lock().unwrap_or_else(|e| e.into_inner());
                notices.push(Notice { call, context });
            }
        }
    }

    /// Asks it to stop, and says how far that has come: what is being stopped is in progress.
    pub fn cancel(self: &Arc<Self>) -> H5VL_request_status_t {
        /// Workers stop at the next block.
        const A_BLOCK: Duration = Duration::from_millis(20);
        if let Some(outcome) = self.outcome() {
            return outcome.status();
        }
        let mut work = self.work();
        let requests = match &*work {
            Work::After(..) => return H5VL_REQUEST_STATUS_CANT_CANCEL,
            Work::Queued(_) => {
                let queued = std::mem::replace(&mut *work, Work::Done);
                drop(work);
                drop(queued);
                self.end(Outcome::Cancelled);
                return H5VL_REQUEST_STATUS_CANCELED;
            }
            Work::Moving(moving) => moving.begun.requests.clone(),
            Work::Done => return H5VL_REQUEST_STATUS_IN_PROGRESS,
        };
        drop(work);
        requests.iter().for_each(|request| request.cancel());
        match self.wait(Some(A_BLOCK)) {
            Some(outcome) => outcome.status(),
            None => H5VL_REQUEST_STATUS_IN_PROGRESS,
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Pending for Operation {
    fn go_on(self: Arc<Self>, left: Left<'_>, effort: Effort) -> bool {
        self.proceed(left, effort).is_some()
    }

    fn finish(self: Arc<Self>) {
        self.settle();
    }

    fn has_ended(&self) -> bool {
        self.outcome().is_some()
    }

    fn begin(&self) {
        begin(&mut self.work());
    }

    fn has_request(&self) -> bool {
        self.later.is_none()
    }

    fn tells(&self, failures: &Arc<Failures>) -> bool {
        let is_that = |later: &Arc<Failures>| Arc::ptr_eq(later, failures);
        self.later.as_ref().is_some_and(is_that)
    }

    /// It leaves when what it holds of HDF5 is given back.
    fn is_over(&self) -> bool {
        false
    }

    fn finishes_at_exit(&self) -> bool {
        true
    }
}

/// Begins what is queued.
fn begin(work: &mut Work) {
    if matches!(work, Work::Queued(_))
        && let Work::Queued(queued) = std::mem::replace(work, Work::Done)
    {
        *work = Work::Moving(queued.begin());
    }
}

/// Waits for transfers and takes their turns. The first failure is the outcome, when all have ended.
fn move_all(requests: &[Arc<Request>], left: Left<'_>) -> Option<Result<()>> {
    let mut outcome = Ok(());
    for request in requests {
        let ended = loop {
            match request.wait(left()) {
                Waited::Finished(ended) => break ended,
                Waited::Turn => request.turn(),
                Waited::Pending => return None,
            }
        };
        outcome = outcome.and(ended);
    }
    Some(outcome)
}

#[cfg(test)]
mod tests;
