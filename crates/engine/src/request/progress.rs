//! The states of a request, and what ends it early.
//!
//! A request passes through three phases: *running*, *concluding*, *finished*.
//!
//! 1. Workers run. Each takes blocks until none is left or [`stopping`](Progress::stopping) is
//!    true, and then calls [`leave`](Progress::leave) once. By then it touches none of the caller's
//!    buffers.
//! 2. The first error, or a cancellation, is recorded and stops the workers. Later errors are
//!    ignored.
//! 3. The last worker to leave concludes: [`seal`](Progress::seal) makes it too late to cancel, and
//!    [`finish`](Progress::finish) publishes the outcome and wakes the waiters.
//!
//! A waiter therefore sees an outcome only after every worker has stopped touching memory. An
//! atomic count decides which worker is the last. The tests run under loom, which checks the
//! interleavings.

use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, Recover};

/// The state that the workers of one request share with the threads that wait for it.
pub(crate) struct Progress<E> {
    stop: AtomicBool,
    workers: AtomicUsize,
    state: Mutex<State<E>>,
    finished: Condvar,
}

struct State<E> {
    phase: Phase,
    error: Option<E>,
    /// Whether the submitter has a share of the work that it has not left yet.
    has_steps: bool,
    /// Whether a submitter step is due.
    step: bool,
}

/// The result of a wait for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited<E> {
    /// The request is still in flight when the time is up.
    Pending,
    /// A submitter step is due. The request may not continue without it.
    Step,
    /// The request is finished, and this is its outcome.
    Finished(Result<(), E>),
}

impl<E> Waited<E> {
    /// The outcome, if there is one.
    pub fn finished(self) -> Option<Result<(), E>> {
        match self {
            Waited::Finished(outcome) => Some(outcome),
            Waited::Pending | Waited::Step => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// The last worker does the final work. It is too late to cancel.
    Concluding,
    Finished,
}

impl<E: Clone> Progress<E> {
    pub(crate) fn new(workers: usize) -> Self {
        Progress::with(workers, false)
    }

    /// As [`new`](Self::new), with one more share, which is the submitter's.
    pub(crate) fn with_steps(workers: usize) -> Self {
        Progress::with(workers + 1, true)
    }

    fn with(workers: usize, has_steps: bool) -> Self {
        Progress {
            stop: AtomicBool::new(false),
            workers: AtomicUsize::new(workers),
            state: Mutex::new(State {
                phase: Phase::Running,
                error: None,
                has_steps,
                step: false,
            }),
            finished: Condvar::new(),
        }
    }

    /// Whether workers should take no further block.
    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Records the error, if it is the first, and stops the workers.
    pub(crate) fn fail(&self, error: E) {
        let mut state = self.state.lock().recover();
        if state.phase != Phase::Finished && state.error.is_none() {
            state.error = Some(error);
        }
        self.stop.store(true, Ordering::Relaxed);
        self.call_turn(&mut state);
    }

    /// Makes the submitter's step due, if the request has steps.
    pub(crate) fn ask_step(&self) {
        self.call_turn(&mut self.state.lock().recover());
    }

    fn call_turn(&self, state: &mut State<E>) {
        if state.has_steps && !state.step {
            state.step = true;
            self.finished.notify_all();
        }
    }

    /// Whether a step became due since the last call.
    pub(crate) fn take_step(&self) -> bool {
        std::mem::take(&mut self.state.lock().recover().step)
    }

    /// Ends the submitter's steps. Returns true the first time, after which the caller leaves the
    /// share.
    pub(crate) fn end_steps(&self) -> bool {
        let mut state = self.state.lock().recover();
        state.step = false;
        std::mem::take(&mut state.has_steps)
    }

    /// Adds workers while some share is not left yet.
    pub(crate) fn enter(&self, workers: usize) {
        self.workers.fetch_add(workers, Ordering::Relaxed);
    }

    /// As [`fail`](Self::fail), unless the request is already concluding.
    pub(crate) fn cancel(&self, error: E) {
        let mut state = self.state.lock().recover();
        if state.phase == Phase::Running && state.error.is_none() {
            state.error = Some(error);
            self.stop.store(true, Ordering::Relaxed);
            self.call_turn(&mut state);
        }
    }

    /// Lets one worker leave. Returns true for the last one. When only the submitter's share
    /// remains, its step becomes due.
    pub(crate) fn leave(&self) -> bool {
        // AcqRel lets the last worker see all writes of the other workers.
        match self.workers.fetch_sub(1, Ordering::AcqRel) {
            1 => true,
            2 => {
                self.ask_step();
                false
            }
            _ => false,
        }
    }

    /// Whether the submitter has a share that it has not left.
    pub(crate) fn has_steps(&self) -> bool {
        self.state.lock().recover().has_steps
    }

    /// Whether all shares but the caller's are left. Only the submitter's step adds workers.
    pub(crate) fn is_alone(&self) -> bool {
        self.workers.load(Ordering::Acquire) == 1
    }

    /// Ends the time in which the request can be cancelled. Returns the error that stopped it, if
    /// any.
    pub(crate) fn seal(&self) -> Option<E> {
        let mut state = self.state.lock().recover();
        state.phase = Phase::Concluding;
        state.error.clone()
    }

    /// Publishes the outcome: the first error recorded, or success.
    pub(crate) fn finish(&self) {
        let mut state = self.state.lock().recover();
        state.phase = Phase::Finished;
        self.finished.notify_all();
    }

    /// The result of a wait that does not block.
    pub(crate) fn now(&self) -> Waited<E> {
        Self::of(&self.state.lock().recover())
    }

    fn of(state: &State<E>) -> Waited<E> {
        match state.phase {
            Phase::Finished => Waited::Finished(state.error.clone().map_or(Ok(()), Err)),
            _ if state.step => Waited::Step,
            _ => Waited::Pending,
        }
    }

    /// Waits for the outcome or for the submitter's step.
    pub(crate) fn wait(&self) -> Waited<E> {
        self.wait_until(None)
    }

    /// As [`wait`](Self::wait), at most as long as `limit`.
    pub(crate) fn wait_for(&self, limit: Duration) -> Waited<E> {
        if limit.is_zero() {
            return self.now();
        }
        self.wait_until(Instant::now().checked_add(limit))
    }

    fn wait_until(&self, end: Option<Instant>) -> Waited<E> {
        let mut state = self.state.lock().recover();
        loop {
            match Self::of(&state) {
                Waited::Pending => {}
                news => return news,
            }
            let Some(end) = end else {
                state = self.finished.wait(state).recover();
                continue;
            };
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::Pending;
            }
            (state, _) = self.finished.wait_timeout(state, left).recover();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_the_outcome() {
        let progress = Progress::new(1);
        progress.fail("first");
        progress.fail("second");
        assert!(progress.leave());
        progress.seal();
        progress.finish();
        assert_eq!(progress.now(), Waited::Finished(Err("first")));
    }

    #[test]
    fn cancelling_while_it_concludes_is_too_late() {
        let progress: Progress<&str> = Progress::new(1);
        assert!(progress.leave());
        assert_eq!(progress.seal(), None);
        progress.cancel("cancelled");
        progress.finish();
        assert_eq!(progress.wait(), Waited::Finished(Ok(())));
    }

    #[test]
    fn waiting_ends_when_the_time_is_over() {
        let progress: Progress<&str> = Progress::new(1);
        assert_eq!(progress.wait_for(Duration::from_millis(1)), Waited::Pending);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize as Count;

    /// `touching` counts this worker from before it starts: one step less to interleave.
    fn work(progress: &Progress<u8>, touching: &Count, failure: Option<u8>) {
        if let Some(error) = failure {
            progress.fail(error);
        }
        touching.fetch_sub(1, Ordering::Relaxed);
        if progress.leave() {
            progress.seal();
            progress.finish();
        }
    }

    #[test]
    fn an_error_is_seen_once_all_workers_have_stopped_touching() {
        loom::model(|| {
            let progress = Arc::new(Progress::new(2));
            let touching = Arc::new(Count::new(2));
            let threads: Vec<_> = [Some(1u8), None]
                .into_iter()
                .map(|failure| {
                    let (progress, touching) = (Arc::clone(&progress), Arc::clone(&touching));
                    loom::thread::spawn(move || work(&progress, &touching, failure))
                })
                .collect();
            assert_eq!(progress.wait().finished().unwrap(), Err(1));
            assert_eq!(touching.load(Ordering::Relaxed), 0);
            for t in threads {
                t.join().unwrap();
            }
        });
    }

    #[test]
    fn a_cancel_either_takes_effect_or_comes_too_late_but_the_request_finishes() {
        loom::model(|| {
            let progress = Arc::new(Progress::new(1));
            let touching = Arc::new(Count::new(1));
            let worker = {
                let (progress, touching) = (Arc::clone(&progress), Arc::clone(&touching));
                loom::thread::spawn(move || work(&progress, &touching, None))
            };
            progress.cancel(9);
            let outcome = progress.wait().finished().unwrap();
            assert!(outcome == Ok(()) || outcome == Err(9));
            assert_eq!(progress.now().finished(), Some(outcome));
            worker.join().unwrap();
        });
    }
}
