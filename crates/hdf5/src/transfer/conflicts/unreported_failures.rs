//! Failures of operations without a request, stored until a call can report them.

use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use penstock_engine::Recover;
use penstock_engine::error::{Error, Result};

/// Errors that have not been reported yet.
#[derive(Debug, Default)]
pub struct Failures {
    errors: Mutex<Vec<Error>>,
    /// Whether there may be errors. Frequent queries need no lock.
    has_some: AtomicBool,
}

impl Failures {
    /// Stores an error.
    pub fn add(&self, error: Error) {
        let mut errors = self.errors.lock().recover();
        errors.push(error);
        self.has_some.store(true, Release);
    }

    /// Returns the first failure since the last call and discards the others.
    pub fn take(&self) -> Result<()> {
        if !self.has_some.load(Acquire) {
            return Ok(());
        }
        let mut errors = self.errors.lock().recover();
        self.has_some.store(false, Release);
        let failures = std::mem::take(&mut *errors);
        drop(errors);
        failures.into_iter().next().map_or(Ok(()), Err)
    }
}
