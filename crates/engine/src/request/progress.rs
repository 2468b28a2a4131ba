//! The life of a request: running, concluding, finished; and what ends it early.

use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, lock};

/// Shared by the workers of one request and by those who wait for it.
///
/// Each worker calls [`leave`](Self::leave) once, when it no longer touches the caller's buffers.
/// The last one to leave concludes: it alone calls [`seal`](Self::seal) and then
/// [`finish`](Self::finish). So an error is seen by a waiter only after all siblings have stopped.
pub(crate) struct Progress<E> {
    stop: AtomicBool,
    workers: AtomicUsize,
    state: Mutex<State<E>>,
    finished: Condvar,
}

struct State<E> {
    phase: Phase,
    error: Option<E>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// The last worker writes what must come last; too late to cancel.
    Concluding,
    Finished,
}

impl<E: Clone> Progress<E> {
    pub fn new(workers: usize) -> Self {
        Progress {
            stop: AtomicBool::new(false),
            workers: AtomicUsize::new(workers),
            state: Mutex::new(State {
                phase: Phase::Running,
                error: None,
            }),
            finished: Condvar::new(),
        }
    }

    /// Whether workers should take no further block.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Records the first error and stops the siblings.
    pub fn fail(&self, error: E) {
        let mut state = lock(&self.state);
        if state.phase != Phase::Finished && state.error.is_none() {
            state.error = Some(error);
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// As [`fail`](Self::fail), unless the request is past the point where it can stop.
    pub fn cancel(&self, error: E) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Running && state.error.is_none() {
            state.error = Some(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// One worker is done; true for the last one.
    pub fn leave(&self) -> bool {
        // AcqRel: the last worker sees all that the others wrote.
        self.workers.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// From here on the request cannot be cancelled. Returns the error that stopped it, if any.
    pub fn seal(&self) -> Option<E> {
        let mut state = lock(&self.state);
        state.phase = Phase::Concluding;
        state.error.clone()
    }

    /// Publishes the outcome: the first error recorded, or success.
    pub fn finish(&self) {
        let mut state = lock(&self.state);
        state.phase = Phase::Finished;
        self.finished.notify_all();
    }

    /// The outcome, once there is one.
    pub fn outcome(&self) -> Option<Result<(), E>> {
        Self::outcome_of(&lock(&self.state))
    }

    fn outcome_of(state: &State<E>) -> Option<Result<(), E>> {
        (state.phase == Phase::Finished).then(|| state.error.clone().map_or(Ok(()), Err))
    }

    pub fn wait(&self) -> Result<(), E> {
        let mut state = lock(&self.state);
        loop {
            if let Some(outcome) = Self::outcome_of(&state) {
                return outcome;
            }
            state = self.finished.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// `None` when the time is over first.
    pub fn wait_for(&self, limit: Duration) -> Option<Result<(), E>> {
        let Some(end) = Instant::now().checked_add(limit) else {
            return Some(self.wait());
        };
        let mut state = lock(&self.state);
        loop {
            if let Some(outcome) = Self::outcome_of(&state) {
                return Some(outcome);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = match self.finished.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
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
        assert_eq!(progress.outcome(), Some(Err("first")));
    }

    #[test]
    fn cancelling_while_it_concludes_is_too_late() {
        let progress: Progress<&str> = Progress::new(1);
        assert!(progress.leave());
        assert_eq!(progress.seal(), None);
        progress.cancel("cancelled");
        progress.finish();
        assert_eq!(progress.wait(), Ok(()));
    }

    #[test]
    fn waiting_ends_when_the_time_is_over() {
        let progress: Progress<&str> = Progress::new(1);
        assert_eq!(progress.wait_for(Duration::from_millis(1)), None);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize as Count;

    fn work(progress: &Progress<u8>, touching: &Count, failure: Option<u8>) {
        touching.fetch_add(1, Ordering::Relaxed);
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
            let touching = Arc::new(Count::new(0));
            let threads: Vec<_> = [Some(1u8), None]
                .into_iter()
                .map(|failure| {
                    let (progress, touching) = (Arc::clone(&progress), Arc::clone(&touching));
                    loom::thread::spawn(move || work(&progress, &touching, failure))
                })
                .collect();
            assert_eq!(progress.wait(), Err(1));
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
            let touching = Arc::new(Count::new(0));
            let worker = {
                let (progress, touching) = (Arc::clone(&progress), Arc::clone(&touching));
                loom::thread::spawn(move || work(&progress, &touching, None))
            };
            progress.cancel(9);
            let outcome = progress.wait();
            assert!(outcome == Ok(()) || outcome == Err(9));
            assert_eq!(progress.outcome(), Some(outcome));
            worker.join().unwrap();
        });
    }
}
