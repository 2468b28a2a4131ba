//! The order in which event sets learn that their operations have ended.
//!
//! HDF5, up to 2.2.0 at least, keeps the operations of an event set in a list, and forgets to move the
//! end of the list when the last of them leaves it before another: what is added after that is lost. So
//! a request does not say that it has ended where one before it in the same set has just said that it
//! goes on. HDF5 does not tell which set a request is in. But it asks the requests of a set one after the
//! other, in the order in which they were made, each time that the set is asked. The first of a set may
//! always say that it has ended, which matters where sets are asked in turn.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// Of one request.
pub struct Place {
    number: u64,
    /// When it was asked last; 0 if it was not.
    asked: AtomicU64,
}

struct Last {
    /// Of requests made, and of times that one was asked.
    count: u64,
    /// The request that has said last that it goes on, and when.
    going_on: Option<(u64, u64)>,
}

static LAST: Mutex<Last> = Mutex::new(Last {
    count: 0,
    going_on: None,
});

fn last() -> MutexGuard<'static, Last> {
    LAST.lock().unwrap_or_else(|e| e.into_inner())
}

impl Last {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

impl Place {
    pub fn new() -> Place {
        Place {
            number: last().next(),
            asked: AtomicU64::new(0),
        }
    }

    /// The request is asked. False if it has to say that it goes on: since it was asked the last time
    /// an older one has said so, which may be one of the same set.
    pub fn may_end(&self) -> bool {
        let mut last = last();
        let now = last.next();
        let before = self.asked.swap(now, Relaxed);
        !last
            .going_on
            .is_some_and(|(number, when)| number < self.number && when > before)
    }

    /// It has said that it goes on.
    pub fn goes_on(&self) {
        last().going_on = Some((self.number, self.asked.load(Relaxed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HDF5's list of the requests of an event set, and the order in which it asks them.
    fn ask(set: &mut Vec<(Place, bool)>) {
        let mut is_going_on = false;
        set.retain(|(place, is_over)| {
            let ends = place.may_end() && *is_over;
            if !ends {
                place.goes_on();
            }
            assert!(!(ends && is_going_on), "one ends before an older one");
            is_going_on |= !ends;
            !ends
        });
    }

    fn set(ends: &[bool]) -> Vec<(Place, bool)> {
        ends.iter()
            .map(|is_over| (Place::new(), *is_over))
            .collect()
    }

    // One test: what was asked last is the process's.
    #[test]
    fn requests_of_a_set_end_in_their_order_and_those_of_another_do_not_wait() {
        let mut one = set(&[true, false, true, true, false, true]);
        ask(&mut one);
        assert_eq!(one.len(), 5);
        ask(&mut one);
        assert_eq!(one.len(), 5);

        let mut other = set(&[true, true]);
        ask(&mut one);
        ask(&mut other);
        ask(&mut other);
        assert!(other.is_empty());

        one[0].1 = true;
        ask(&mut one);
        assert_eq!(one.len(), 2);
        one[0].1 = true;
        ask(&mut one);
        assert!(one.is_empty());
    }
}
