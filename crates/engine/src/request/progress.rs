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
    /// The submitter has a share of the work, which it has not left.
    has_turns: bool,
    /// The submitter is asked for its turn.
    turn: bool,
}

/// What a waiter learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited<E> {
    /// The time is over.
    Pending,
    /// The request goes on only after the submitter's turn.
    Turn,
    Finished(Result<(), E>),
}

impl<E> Waited<E> {
    /// The outcome, if there is one.
    pub fn finished(self) -> Option<Result<(), E>> {
        match self {
            Waited::Finished(outcome) => Some(outcome),
            Waited::Pending | Waited::Turn => None,
        }
    }
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
        Progress::with(workers, false)
    }

    /// With a share for the submitter, which counts as one more worker.
    pub fn with_turns(workers: usize) -> Self {
        Progress::with(workers + 1, true)
    }

    fn with(workers: usize, has_turns: bool) -> Self {
        Progress {
            stop: AtomicBool::new(false),
            workers: AtomicUsize::new(workers),
            state: Mutex::new(State {
                phase: Phase::Running,
                error: None,
                has_turns,
                turn: false,
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
        self.call_turn(&mut state);
    }

    /// Asks for the submitter's turn, if it has turns.
    pub fn ask_turn(&self) {
        self.call_turn(&mut lock(&self.state));
    }

    fn call_turn(&self, state: &mut State<E>) {
        if state.has_turns && !state.turn {
            state.turn = true;
            self.finished.notify_all();
        }
    }

    /// Whether it is the submitter's turn; the answer is given once for each time asked.
    pub fn take_turn(&self) -> bool {
        std::mem::take(&mut lock(&self.state).turn)
    }

    /// The submitter has no more turns. True the first time: its share is then to be left.
    pub fn end_turns(&self) -> bool {
        let mut state = lock(&self.state);
        state.turn = false;
        std::mem::take(&mut state.has_turns)
    }

    /// More workers than the request began with. Only while a share is not left yet.
    pub fn enter(&self, workers: usize) {
        self.workers.fetch_add(workers, Ordering::Relaxed);
    }

    /// As [`fail`](Self::fail), unless the request is past the point where it can stop.
    pub fn cancel(&self, error: E) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Running && state.error.is_none() {
            state.error = Some(error);
            self.stop.store(true, Ordering::Relaxed);
            self.call_turn(&mut state);
        }
    }

    /// One worker is done; true for the last one. When only the submitter's share is left, its
    /// turn is asked for.
    pub fn leave(&self) -> bool {
        // AcqRel: the last worker sees all that the others wrote.
        match self.workers.fetch_sub(1, Ordering::AcqRel) {
            1 => true,
            2 => {
                self.ask_turn();
                false
            }
            _ => false,
        }
    }

    /// Whether the submitter has a share that it has not left.
    pub fn has_turns(&self) -> bool {
        lock(&self.state).has_turns
    }

    /// Whether nobody but the caller has a share that is not left. More workers come only by the
    /// submitter's turn.
    pub fn is_alone(&self) -> bool {
        self.workers.load(Ordering::Acquire) == 1
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

    /// What a waiter would learn now.
    pub fn now(&self) -> Waited<E> {
        Self::of(&lock(&self.state))
    }

    fn of(state: &State<E>) -> Waited<E> {
        match state.phase {
            Phase::Finished => Waited::Finished(state.error.clone().map_or(Ok(()), Err)),
            _ if state.turn => Waited::Turn,
            _ => Waited::Pending,
        }
    }

    /// Waits for the end or the submitter's turn.
    pub fn wait(&self) -> Waited<E> {
        let mut state = lock(&self.state);
        loop {
            match Self::of(&state) {
                Waited::Pending => {}
                news => return news,
            }
            state = self.finished.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// As [`wait`](Self::wait), at most as long as `limit`.
    pub fn wait_for(&self, limit: Duration) -> Waited<E> {
        if limit.is_zero() {
            return self.now();
        }
        let Some(end) = Instant::now().checked_add(limit) else {
            return self.wait();
        };
        let mut state = lock(&self.state);
        loop {
            match Self::of(&state) {
                Waited::Pending => {}
                news => return news,
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::Pending;
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
            let touching = Arc::new(Count::new(0));
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
