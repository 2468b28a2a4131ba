//! Locks and atomics of the state machines that loom checks; otherwise those of std.

use std::sync::{LockResult, PoisonError};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

#[cfg(not(loom))]
pub(crate) use condvar::Condvar;

/// Gives access to what a lock guards even if a thread panicked while it held the lock. Each state
/// is consistent at every step, and the panic is reported where it happened.
pub trait Recover {
    /// A lock's guard, or the result of a wait.
    type Guarded;

    /// The guard, even of a poisoned lock.
    fn recover(self) -> Self::Guarded;
}

impl<T> Recover for LockResult<T> {
    type Guarded = T;

    fn recover(self) -> T {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(not(loom))]
mod condvar {
    use std::sync::{LockResult, MutexGuard, WaitTimeoutResult};
    use std::time::Duration;

    use super::{AtomicUsize, Ordering};

    /// A condition variable that makes no system call to notify if no thread waits, while std's
    /// makes one each time. The notifying thread changes the condition under the mutex, before or
    /// while it notifies. So a waiting thread is counted by then, or sees the change.
    #[derive(Debug)]
    pub(crate) struct Condvar {
        inner: std::sync::Condvar,
        waiting: AtomicUsize,
    }

    impl Condvar {
        pub(crate) const fn new() -> Condvar {
            Condvar {
                inner: std::sync::Condvar::new(),
                waiting: AtomicUsize::new(0),
            }
        }

        pub(crate) fn wait<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
        ) -> LockResult<MutexGuard<'a, T>> {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let woken = self.inner.wait(guard);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            woken
        }

        pub(crate) fn wait_timeout<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            limit: Duration,
        ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let woken = self.inner.wait_timeout(guard, limit);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            woken
        }

        pub(crate) fn notify_one(&self) {
            if self.waiting.load(Ordering::Relaxed) > 0 {
                self.inner.notify_one();
            }
        }

        pub(crate) fn notify_all(&self) {
            if self.waiting.load(Ordering::Relaxed) > 0 {
                self.inner.notify_all();
            }
        }
    }
}
