//! Who holds GPU memory for a while, so that those who find none left can wait until it is returned.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::Context;
use crate::sync::Recover;

/// Counts those who hold GPU memory of a context.
#[derive(Default)]
pub(super) struct Holders {
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    holding: usize,
    /// How often memory was returned.
    returns: u64,
    /// Threads that wait: notifying nobody would be a system call each time.
    waiting: usize,
}

/// Counts its owner among those who hold GPU memory. It is made before the memory is taken, and dropped once
/// the memory is free again.
///
/// Others wait for its owner, who must therefore neither wait for memory meanwhile nor for anybody who does.
pub struct Holding {
    context: Arc<Context>,
    has_memory: bool,
}

/// What a wait for memory has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Memory was returned.
    Returned,
    /// Others hold memory still.
    Pending,
    /// Nobody has held any: an allocation that has failed meanwhile fails whenever it is made.
    Nobody,
}

/// Those who wait ask so often whether something else than memory has come for them, such as the end of
/// their request.
const PAUSE: Duration = Duration::from_millis(10);

impl Holders {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().recover()
    }

    pub(super) fn enter(&self) {
        self.lock().holding += 1;
    }

    /// `has_returned` says whether memory was returned.
    pub(super) fn leave(&self, has_returned: bool) {
        let mut state = self.lock();
        state.holding -= 1;
        state.returns += u64::from(has_returned);
        if has_returned && state.waiting > 0 {
            self.returned.notify_all();
        }
    }

    fn returns(&self) -> u64 {
        self.lock().returns
    }

    fn wait(&self, seen: u64) -> Awaited {
        let mut state = self.lock();
        if state.returns == seen && state.holding == 0 {
            return Awaited::Nobody;
        }
        state.waiting += 1;
        let is_same = |state: &mut State| state.returns == seen;
        let waited = self.returned.wait_timeout_while(state, PAUSE, is_same);
        let (mut state, _) = waited.recover();
        state.waiting -= 1;
        match state.returns == seen {
            true => Awaited::Pending,
            false => Awaited::Returned,
        }
    }
}

impl Context {
    /// Counts the caller among those who hold memory of this context.
    pub fn hold_memory(self: &Arc<Self>) -> Holding {
        self.holders.enter();
        Holding {
            context: Arc::clone(self),
            has_memory: true,
        }
    }

    /// How often memory of this context was returned so far, for [`wait_for_memory`](Self::wait_for_memory).
    pub fn memory_returns(&self) -> u64 {
        self.holders.returns()
    }

    /// Waits, at most for some milliseconds, for one more return of memory than `seen`.
    ///
    /// The caller holds neither memory nor a slot of the ring, for which those who hold memory may wait.
    pub fn wait_for_memory(&self, seen: u64) -> Awaited {
        self.holders.wait(seen)
    }
}

impl Holding {
    /// Ends this without waking those who wait: its owner has got no memory.
    pub fn got_nothing(mut self) {
        self.has_memory = false;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.context.holders.leave(self.has_memory);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn there_is_nothing_to_wait_for_while_nobody_holds_memory() {
        let holders = Holders::default();
        let seen = holders.returns();
        holders.enter();
        assert_eq!(holders.wait(seen), Awaited::Pending);
        holders.leave(false);
        assert_eq!(holders.wait(seen), Awaited::Nobody);
    }

    #[test]
    fn memory_that_was_returned_before_the_wait_ends_it_at_once() {
        let holders = Holders::default();
        holders.enter();
        let seen = holders.returns();
        holders.leave(true);
        assert_eq!(holders.wait(seen), Awaited::Returned);
        assert_eq!(holders.wait(holders.returns()), Awaited::Nobody);
    }

    #[test]
    fn who_waits_is_woken_when_memory_is_returned() {
        let holders = Holders::default();
        holders.enter();
        let seen = holders.returns();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let start = Instant::now();
                while holders.wait(seen) == Awaited::Pending {
                    assert!(start.elapsed() < Duration::from_secs(60));
                }
            });
            std::thread::sleep(3 * PAUSE);
            holders.leave(true);
        });
        assert_eq!(holders.wait(seen), Awaited::Returned);
    }
}
