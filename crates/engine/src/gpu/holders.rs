//! Counts users of GPU memory, so that a failed allocation can wait for a release.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::OwnContext;
use crate::sync::Recover;

/// The count of users that hold GPU memory of a context.
#[derive(Default)]
pub(super) struct Holders {
    state: Mutex<Counts>,
    returned: Condvar,
}

#[derive(Default)]
struct Counts {
    holding: usize,
    /// The number of times that memory was returned.
    returns: u64,
    /// The number of threads that wait. Without waiting threads, a notification would be a needless
    /// system call.
    waiting: usize,
}

/// One user that holds GPU memory. It is created before the memory is allocated, and dropped once
/// the memory is free again.
///
/// Other threads wait for its owner. The owner must therefore wait neither for memory nor for a
/// thread that waits for memory.
pub struct Holding {
    context: Arc<OwnContext>,
    has_memory: bool,
}

/// The result of a wait for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// Memory was returned.
    Returned,
    /// Memory is still held.
    Pending,
    /// No memory was held. An allocation that has failed since then would fail at any time.
    NoHolders,
}

/// The longest single wait. Afterwards the waiting thread checks for other events, such as the end
/// of its request.
const PAUSE: Duration = Duration::from_millis(10);

impl Holders {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.state.lock().recover()
    }

    pub(super) fn enter(&self) {
        self.lock().holding += 1;
    }

    /// Removes a user. `has_returned` is whether memory was returned.
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
            return Awaited::NoHolders;
        }
        state.waiting += 1;
        let is_same = |state: &mut Counts| state.returns == seen;
        let waited = self.returned.wait_timeout_while(state, PAUSE, is_same);
        let (mut state, _) = waited.recover();
        state.waiting -= 1;
        if state.returns == seen {
            Awaited::Pending
        } else {
            Awaited::Returned
        }
    }
}

impl OwnContext {
    /// Counts the caller among the users that hold memory of this context.
    pub fn hold_memory(self: &Arc<Self>) -> Holding {
        self.holders.enter();
        Holding {
            context: Arc::clone(self),
            has_memory: true,
        }
    }

    /// The number of returns of memory of this context so far, for
    /// [`wait_for_memory`](Self::wait_for_memory).
    pub fn memory_returns(&self) -> u64 {
        self.holders.returns()
    }

    /// Waits, at most for some milliseconds, for one more return of memory than `seen`.
    ///
    /// The caller holds neither memory nor a slot of the ring, because holders of memory may wait
    /// for either.
    pub fn wait_for_memory(&self, seen: u64) -> Awaited {
        self.holders.wait(seen)
    }
}

impl Holding {
    /// Ends this without waking waiting threads, because its owner has got no memory.
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
    fn a_wait_ends_at_once_while_no_memory_is_held() {
        let holders = Holders::default();
        let seen = holders.returns();
        holders.enter();
        assert_eq!(holders.wait(seen), Awaited::Pending);
        holders.leave(false);
        assert_eq!(holders.wait(seen), Awaited::NoHolders);
    }

    #[test]
    fn memory_that_was_returned_before_the_wait_ends_it_at_once() {
        let holders = Holders::default();
        holders.enter();
        let seen = holders.returns();
        holders.leave(true);
        assert_eq!(holders.wait(seen), Awaited::Returned);
        assert_eq!(holders.wait(holders.returns()), Awaited::NoHolders);
    }

    #[test]
    fn a_waiting_thread_is_woken_when_memory_is_returned() {
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
