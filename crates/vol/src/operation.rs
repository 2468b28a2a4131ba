//! One operation that continues after its call has returned.
//!
//! The engine's workers move its bytes, or it waits for operations whose bytes they move. Threads
//! inside calls of HDF5 run the parts that require HDF5, in [`wait`](AsyncOperation::wait) and
//! similar functions.

mod delay;

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use penstock_engine::Recover;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::refuse_fork;
use penstock_engine::request::{Request, Waited};
use penstock_sys::hdf5::connector::*;

use super::log::since_epoch;
use super::temporary_id::TemporaryId;
use super::visit::is_in_call;
use penstock_hdf5::transfer::conflicts::{Effort, Failures, Left, Pending, Shared};

pub(crate) use delay::begin_after;

/// An operation that continues after its call. Event sets hold it by a request.
pub(crate) struct AsyncOperation {
    /// The name of the application's call.
    pub(crate) call: &'static CStr,
    /// The time of the call, in microseconds since the epoch, the unit of event sets.
    begun: u64,
    since: Instant,
    /// List for a failure of an operation without a request.
    failures: Option<Arc<Failures>>,
    state: Mutex<State>,
    /// Whether a call is advancing the operation. Nested calls skip it.
    is_busy: AtomicBool,
    /// Whether its last step waits until this thread can flush the file.
    is_postponed: AtomicBool,
    ending: OnceLock<Ending>,
    notices: Mutex<Vec<Notice>>,
    /// Removes the operation from the pending ones.
    leave: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

// SAFETY: only threads inside a call of HDF5 use and drop the members that are not `Send` or `Sync`, and HDF5
// admits one thread at a time.
unsafe impl Send for AsyncOperation {}
// SAFETY: as above.
unsafe impl Sync for AsyncOperation {}

/// The state of an operation.
pub(crate) enum State {
    /// No transfer has begun.
    Queued(Transfers),
    Running(Transfers),
    /// A call that follows other operations.
    Deferred(DeferredCall),
    Done,
}

/// A call of the connector below that follows other operations. A thread inside HDF5 makes it.
pub(crate) struct DeferredCall {
    pub(crate) after: Vec<Shared>,
    /// Whether it flushes or closes a file.
    pub(crate) flushes: bool,
    pub(crate) call: Box<dyn FnOnce() -> Result<()>>,
}

/// Submits one transfer to the engine. Calls no function of HDF5.
pub(crate) type Submission = Box<dyn FnOnce() -> Result<Request>>;

/// The transfers of an operation.
#[derive(Default)]
pub(crate) struct Transfers {
    /// Transfers that have not begun.
    pub(crate) ready: Vec<Submission>,
    /// Transfers that have begun.
    pub(crate) requests: Vec<Arc<Request>>,
    /// Reason why a transfer, and therefore all later ones, did not begin.
    pub(crate) failed: Option<Error>,
    /// Identifiers that submitter steps use.
    pub(crate) ids: Vec<TemporaryId>,
}

impl Transfers {
    /// Begins the transfers, up to the first that cannot begin.
    pub(crate) fn begin(&mut self) {
        for submit in std::mem::take(&mut self.ready) {
            match submit() {
                Ok(request) => self.requests.push(Arc::new(request)),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
    }

    /// Waits for the transfers, and runs their submitter steps.
    pub(crate) fn finish(self) -> Result<()> {
        let ends = self.requests.iter().map(|request| request.finish());
        ends.fold(self.failed.map_or(Ok(()), Err), Result::and)
    }
}

/// The result of an operation.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Succeeded,
    Failed(Error),
    Cancelled,
}

struct Ending {
    outcome: Outcome,
    took: Duration,
}

/// A function to call at the end of the operation.
struct Notice {
    call: unsafe extern "C" fn(ctx: *mut c_void, status: H5VL_request_status_t) -> i32,
    context: *mut c_void,
}

/// The next action of a thread.
enum Action {
    WaitForRequests(Vec<Arc<Request>>, Option<Error>),
    WaitForOperations(Vec<Shared>),
    Nothing,
}

impl Outcome {
    pub(crate) fn status(&self) -> H5VL_request_status_t {
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

impl AsyncOperation {
    pub(crate) fn new(
        call: &'static CStr,
        failures: Option<Arc<Failures>>,
        state: State,
    ) -> Arc<AsyncOperation> {
        let operation = Arc::new(AsyncOperation {
            call,
            begun: since_epoch(),
            since: Instant::now(),
            failures,
            state: Mutex::new(state),
            is_busy: AtomicBool::new(false),
            is_postponed: AtomicBool::new(false),
            ending: OnceLock::new(),
            notices: Mutex::default(),
            leave: OnceLock::new(),
        });
        match &*operation.state() {
            State::Queued(transfers) | State::Running(transfers) => {
                transfers.ids.iter().for_each(|id| id.set_user(&operation));
            }
            State::Deferred(_) | State::Done => {}
        }
        operation
    }

    /// Sets the function that removes the operation from the pending ones.
    pub(crate) fn set_leave(&self, leave: Box<dyn Fn() + Send + Sync>) {
        let _ = self.leave.set(leave);
    }

    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.ending.get().map(|ending| &ending.outcome)
    }

    /// Returns the time of the call, in microseconds since the epoch, and the duration until the
    /// end or until now, in nanoseconds.
    pub(crate) fn times(&self) -> (u64, u64) {
        let took = self
            .ending
            .get()
            .map_or_else(|| self.since.elapsed(), |e| e.took);
        (self.begun, took.as_nanos() as u64)
    }

    /// Runs the steps that only this thread can run, and waits for the rest, for at most `limit` or
    /// without a limit. Returns the outcome if the operation has ended.
    pub(crate) fn wait(self: &Arc<Self>, limit: Option<Duration>) -> Option<&Outcome> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let left = || end.map(|end| end.saturating_duration_since(Instant::now()));
        let effort = if limit.is_some() && is_in_call() {
            Effort::Bytes
        } else {
            Effort::All
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

    /// Waits until the operation has ended. Returns early inside another call that advances the
    /// operation, or inside a call in which HDF5 cannot finish it.
    pub(crate) fn wait_if_possible(self: &Arc<Self>) {
        if is_in_call() {
            self.proceed(&|| None, Effort::Bytes);
        } else {
            self.wait(None);
        }
    }

    fn advance(self: &Arc<Self>, left: Left<'_>, effort: Effort) {
        match self.next_action(effort) {
            Action::WaitForRequests(requests, failed) => {
                let waited = wait_for_all(&requests, left);
                let is_postponed = matches!(waited, TransfersWaited::Postponed);
                self.is_postponed.store(is_postponed, Relaxed);
                if let TransfersWaited::Ended(outcome) = waited {
                    self.end(failed.map_or(outcome, Err).into());
                }
            }
            Action::WaitForOperations(others) => {
                let is_over = |other: &Shared| Arc::clone(other).go_on(left, effort);
                if others.iter().all(is_over) {
                    let state = std::mem::replace(&mut *self.state(), State::Done);
                    if let State::Deferred(deferred) = state {
                        self.end((deferred.call)().into());
                    }
                }
            }
            Action::Nothing => {}
        }
    }

    fn next_action(&self, effort: Effort) -> Action {
        let mut state = self.state();
        if effort != Effort::Begun {
            begin(&mut state);
        }
        match &*state {
            State::Queued(_) => Action::Nothing,
            State::Running(transfers) => {
                Action::WaitForRequests(transfers.requests.clone(), transfers.failed.clone())
            }
            State::Deferred(deferred) => {
                let is_for_later = is_in_call() && (deferred.flushes || effort != Effort::All);
                if is_for_later || effort == Effort::Bytes {
                    Action::Nothing
                } else {
                    Action::WaitForOperations(deferred.after.clone())
                }
            }
            State::Done => Action::Nothing,
        }
    }

    fn end(&self, outcome: Outcome) {
        let status = outcome.status();
        if let (Some(failures), Outcome::Failed(error)) = (&self.failures, &outcome) {
            failures.add(error.clone());
        }
        let took = self.since.elapsed();
        let _ = self.ending.set(Ending { outcome, took });
        let state = std::mem::replace(&mut *self.state(), State::Done);
        match refuse_fork() {
            // Closing the identifiers calls this connector again.
            Ok(()) => drop(state),
            // Threads of the parent process use the buffers and files.
            Err(_) => std::mem::forget(state),
        }
        if let Some(leave) = self.leave.get() {
            leave();
        }
        let notices = std::mem::take(&mut *self.notices.lock().recover());
        for notice in notices {
            // SAFETY: the caller of `notify` has guaranteed the function and its argument.
            unsafe { (notice.call)(notice.context, status) };
        }
    }

    /// Calls `call` when the operation ends, or now if it has ended.
    ///
    /// # Safety
    /// `call` may be called once with `context`, on any thread inside HDF5.
    pub(crate) unsafe fn notify(&self, call: H5VL_request_notify_t, context: *mut c_void) {
        let Some(call) = call else { return };
        match self.outcome() {
            // SAFETY: the caller guarantees this.
            Some(outcome) => unsafe {
                call(context, outcome.status());
            },
            None => {
                let mut notices = self.notices.lock().recover();
                notices.push(Notice { call, context });
            }
        }
    }

    /// Cancels the operation. Returns its status, which is in progress while workers are stopping.
    pub(crate) fn cancel(self: &Arc<Self>) -> H5VL_request_status_t {
        /// Time for workers to finish their blocks.
        const TIME_TO_STOP: Duration = Duration::from_millis(20);
        if let Some(outcome) = self.outcome() {
            return outcome.status();
        }
        let mut state = self.state();
        let requests = match &*state {
            State::Deferred(_) => return H5VL_REQUEST_STATUS_CANT_CANCEL,
            State::Queued(_) => {
                let queued = std::mem::replace(&mut *state, State::Done);
                drop(state);
                drop(queued);
                self.end(Outcome::Cancelled);
                return H5VL_REQUEST_STATUS_CANCELED;
            }
            State::Running(transfers) => transfers.requests.clone(),
            State::Done => return H5VL_REQUEST_STATUS_IN_PROGRESS,
        };
        drop(state);
        requests.iter().for_each(|request| request.cancel());
        match self.wait(Some(TIME_TO_STOP)) {
            Some(outcome) => outcome.status(),
            None => H5VL_REQUEST_STATUS_IN_PROGRESS,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().recover()
    }
}

impl Pending for AsyncOperation {
    fn go_on(self: Arc<Self>, left: Left<'_>, effort: Effort) -> bool {
        self.proceed(left, effort).is_some()
    }

    fn finish(self: Arc<Self>) {
        self.wait_if_possible();
    }

    fn has_ended(&self) -> bool {
        self.outcome().is_some()
    }

    fn begin(&self) {
        begin(&mut self.state());
    }

    fn has_request(&self) -> bool {
        self.failures.is_none()
    }

    fn reports_to(&self, failures: &Arc<Failures>) -> bool {
        let is_that = |own: &Arc<Failures>| Arc::ptr_eq(own, failures);
        self.failures.as_ref().is_some_and(is_that)
    }

    fn is_postponed(&self) -> bool {
        if self.has_ended() {
            return false;
        }
        let is_postponed = |operation: &Shared| operation.is_postponed();
        match &*self.state() {
            State::Deferred(deferred) => deferred.after.iter().any(is_postponed),
            _ => self.is_postponed.load(Relaxed),
        }
    }

    /// Returns whether the operation is over. It leaves the pending ones itself after it has closed
    /// its identifiers.
    fn is_over(&self) -> bool {
        false
    }

    fn finishes_at_exit(&self) -> bool {
        true
    }
}

/// Begins queued transfers.
fn begin(state: &mut State) {
    if let State::Queued(queued) = state {
        let mut transfers = std::mem::take(queued);
        transfers.begin();
        *state = State::Running(transfers);
    }
}

/// The result of waiting for transfers.
enum TransfersWaited {
    /// All have ended, with this outcome.
    Ended(Result<()>),
    /// The time limit has passed.
    Pending,
    /// Only submitter steps that this thread cannot run now are left.
    Postponed,
}

/// Waits for transfers and runs their submitter steps. When all have ended, returns the first failure.
fn wait_for_all(requests: &[Arc<Request>], left: Left<'_>) -> TransfersWaited {
    let (mut outcome, mut is_postponed) = (Ok(()), false);
    for request in requests {
        loop {
            match request.wait(left()) {
                Waited::Finished(ended) => {
                    outcome = outcome.and(ended);
                    break;
                }
                Waited::Step if !request.step() => {
                    is_postponed = true;
                    break;
                }
                Waited::Step => {}
                Waited::Pending => return TransfersWaited::Pending,
            }
        }
    }
    if is_postponed {
        TransfersWaited::Postponed
    } else {
        TransfersWaited::Ended(outcome)
    }
}

#[cfg(test)]
mod tests;
