//! Counters of requests in flight, which let a thread wait for those that are in flight now.
//!
//! A wait must not include requests that enter after it, or it might never end. So each wait closes
//! the present *round* and opens the next one. A request is counted in the round in which it
//! entered, and a wait is over when no round up to its own has requests. Rounds without requests
//! are removed from the front, so the oldest remaining round decides for every wait.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use crate::sync::{Condvar, Mutex, Recover};

/// The requests of this process.
pub(crate) static REQUESTS: LazyLock<Arc<InFlight>> = LazyLock::new(|| Arc::new(InFlight::new()));

/// The requests of this process that finish without steps of their submitter.
pub(crate) static WITHOUT_STEPS: LazyLock<Arc<InFlight>> =
    LazyLock::new(|| Arc::new(InFlight::new()));

/// Counts requests from [`enter`](Self::enter) to [`leave`](Self::leave).
pub(crate) struct InFlight {
    state: Mutex<Rounds>,
    left: Condvar,
}

#[derive(Default)]
struct Rounds {
    /// The number of waits so far. It separates the requests that entered before a wait from those
    /// that entered after it.
    round: Round,
    /// The rounds with requests in flight, in order, with their number. The first is never empty.
    present: VecDeque<(Round, usize)>,
}

/// The round in which a request entered, for [`InFlight::leave`].
#[derive(Clone, Copy, Default, PartialEq, PartialOrd)]
pub(crate) struct Round(u64);

impl InFlight {
    pub(crate) fn new() -> InFlight {
        InFlight {
            state: Mutex::new(Rounds::default()),
            left: Condvar::new(),
        }
    }

    pub(crate) fn enter(&self) -> Round {
        let mut state = self.state.lock().recover();
        let now = state.round;
        match state.present.back_mut() {
            Some((round, count)) if *round == now => *count += 1,
            _ => state.present.push_back((now, 1)),
        }
        now
    }

    /// Removes one request that entered in the round `entered`.
    pub(crate) fn leave(&self, entered: Round) {
        let mut state = self.state.lock().recover();
        if let Some((_, count)) = state.present.iter_mut().find(|(r, _)| *r == entered) {
            *count -= 1;
        }
        let first = state.present.front().map(|(round, _)| *round);
        while state.present.front().is_some_and(|(_, count)| *count == 0) {
            state.present.pop_front();
        }
        if state.present.front().map(|(round, _)| *round) != first {
            self.left.notify_all();
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.state.lock().recover().present.is_empty()
    }

    /// Waits until every request that is in flight now has left. Requests that enter meanwhile are
    /// not waited for, so the wait ends however many of them enter.
    pub(crate) fn wait_for_present(&self) {
        let mut state = self.state.lock().recover();
        let last = state.round;
        state.round = Round(last.0 + 1);
        while state
            .present
            .front()
            .is_some_and(|(round, _)| *round <= last)
        {
            state = self.left.wait(state).recover();
        }
    }
}
