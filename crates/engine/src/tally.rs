//! A count of requests under way that can be waited for to be none.

use crate::sync::{Condvar, Mutex, lock};

#[derive(Debug)]
pub(crate) struct Tally {
    count: Mutex<usize>,
    none: Condvar,
}

impl Tally {
    pub fn new() -> Tally {
        Tally {
            count: Mutex::new(0),
            none: Condvar::new(),
        }
    }

    pub fn enter(&self) {
        *lock(&self.count) += 1;
    }

    pub fn leave(&self) {
        let mut count = lock(&self.count);
        *count -= 1;
        if *count == 0 {
            self.none.notify_all();
        }
    }

    pub fn is_none(&self) -> bool {
        *lock(&self.count) == 0
    }

    pub fn wait_for_none(&self) {
        let mut count = lock(&self.count);
        while *count > 0 {
            count = self.none.wait(count).unwrap_or_else(|e| e.into_inner());
        }
    }
}
