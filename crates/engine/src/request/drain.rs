//! Waiting for several requests at once: those of the process, or those of a file.

use super::launch::Drain;
use crate::error::Result;
use crate::file::File;
use crate::fork::refuse_fork;
use crate::in_flight::WITHOUT_STEPS;

/// Waits for all requests that are in flight in this process now, except those with submitter
/// steps: such a request may need the thread that waits here.
///
/// # Errors
/// [`Kind::Forked`](crate::error::Kind::Forked) in a forked child. The outcome of a request is
/// reported only to callers that wait for that request.
pub fn drain() -> Result<()> {
    refuse_fork()?;
    let _drain = Drain::begin();
    WITHOUT_STEPS.wait_for_present();
    Ok(())
}

impl File {
    /// Waits for all requests of this file that are in flight now.
    pub fn wait_until_unused(&self) {
        let _drain = (!self.users.is_none()).then(Drain::begin);
        self.users.wait_for_present();
    }
}
