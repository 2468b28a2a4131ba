//! Values that this process has seen, so that it does something once for each.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The most values that are kept. The oldest is forgotten first.
const MOST: usize = 1024;

/// The latest values. A call never waits: in a child of fork, a thread of the parent may hold the
/// lock for ever. If the lock is held, no value is known and none is kept, so what is done once for
/// each value must do no harm when it is repeated.
pub(crate) struct Recent<T>(Mutex<VecDeque<T>>);

impl<T: PartialEq> Recent<T> {
    pub(crate) const fn new() -> Recent<T> {
        Recent(Mutex::new(VecDeque::new()))
    }

    pub(crate) fn has(&self, value: &T) -> bool {
        self.values().is_some_and(|values| values.contains(value))
    }

    pub(crate) fn add(&self, value: T) {
        if let Some(mut values) = self.values() {
            if values.len() == MOST {
                values.pop_front();
            }
            values.push_back(value);
        }
    }

    fn values(&self) -> Option<MutexGuard<'_, VecDeque<T>>> {
        match self.0.try_lock() {
            Ok(values) => Some(values),
            Err(TryLockError::Poisoned(values)) => Some(values.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_values_are_kept() {
        let recent = Recent::new();
        (0..=MOST).for_each(|value| recent.add(value));
        assert!(!recent.has(&0) && recent.has(&1) && recent.has(&MOST));
    }

    #[test]
    fn no_call_waits_while_a_thread_of_the_parent_holds_the_lock() {
        let recent = Recent::new();
        recent.add(1);
        let held = recent.0.lock();
        assert!(!recent.has(&1));
        recent.add(2);
        drop(held);
        assert!(recent.has(&1) && !recent.has(&2));
    }
}
