//! Failures of operations that nobody waits for, kept until a call can report them.

use std::sync::Mutex;

use penstock_engine::error::{Error, Result};

#[derive(Debug, Default)]
/// Errors that have not been reported yet.
pub struct Failures(Mutex<Vec<Error>>);

impl Failures {
    /// Stores an error.
    pub fn add(&self, error: Error) {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).push(error);
    }

    /// Returns the first failure since the last call and discards the others.
    pub fn take(&self) -> Result<()> {
        let failures = std::mem::take(&mut *self.0.lock().unwrap_or_else(|e| e.into_inner()));
        failures.into_iter().next().map_or(Ok(()), Err)
    }
}
