//! Failures of operations that nobody waits for, until a call can tell of them.

use std::sync::Mutex;

use penstock_engine::error::{Error, Result};

#[derive(Debug, Default)]
/// Errors that nobody was told of yet.
pub struct Failures(Mutex<Vec<Error>>);

impl Failures {
    /// Keeps an error.
    pub fn add(&self, error: Error) {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).push(error);
    }

    /// The first failure since the last time, which stands for all.
    pub fn take(&self) -> Result<()> {
        let failures = std::mem::take(&mut *self.0.lock().unwrap_or_else(|e| e.into_inner()));
        failures.into_iter().next().map_or(Ok(()), Err)
    }
}
