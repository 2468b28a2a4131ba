//! A count of requests under way, of which those that are there can be waited for.

use std::collections::VecDeque;

use crate::sync::{Condvar, Mutex, lock};

#[derive(Debug)]
pub(crate) struct Tally {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Raised by each wait, so that it does not wait for who enters later.
    round: Round,
    /// The rounds that are not over, in their order, and how many are still there of each. The first
    /// one is never empty.
    present: VecDeque<(Round, usize)>,
}

/// When somebody entered, to be given back on leaving.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub(crate) struct Round(u64);

impl Tally {
    pub fn new() -> Tally {
        Tally {
            state: Mutex::new(State::default()),
            left: Condvar::new(),
        }
    }

    pub fn enter(&self) -> Round {
        let mut state = lock(&self.state);
        let now = state.round;
        match state.present.back_mut() {
            Some((round, count)) if *round == now => *count += 1,
            _ => state.present.push_back((now, 1)),
        }
        now
    }

    /// Counts out who has entered in this round.
    pub fn leave(&self, entered: Round) {
        let mut state = lock(&self.state);
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

    pub fn is_none(&self) -> bool {
        lock(&self.state).present.is_empty()
    }

    /// Waits until all have left who are there now. Those who enter meanwhile are not waited for, so
    /// that it ends however many come.
    pub fn wait_for_present(&self) {
        let mut state = lock(&self.state);
        let last = state.round;
        state.round = Round(last.0 + 1);
        while state
            .present
            .front()
            .is_some_and(|(round, _)| *round <= last)
        {
            state = self.left.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }
}
