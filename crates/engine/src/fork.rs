//! Children made by fork, in which the engine refuses to work.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::error::{Error, Kind, Result};

/// Set in a child made by fork: none of the engine's threads exist there, and its locks may be
/// held for ever by threads of the parent.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The number of this process; 0 if forks are not watched, so that only the system knows it.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Returns the number of this process, in most cases without a system call.
pub fn process() -> u32 {
    match PROCESS.load(Ordering::Relaxed) {
        0 => std::process::id(),
        known => known,
    }
}

/// Makes [`refuse_fork`] fail in every child that is forked from now on. Called before the engine
/// creates what a child could not use: threads, locks that threads hold, the CUDA driver.
pub(crate) fn watch_forks() {
    unsafe extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
        PROCESS.store(0, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only stores to atomics, which is allowed after fork.
        let is_watched = unsafe { libc::pthread_atfork(None, None, Some(in_child)) } == 0;
        if is_watched {
            PROCESS.store(std::process::id(), Ordering::Relaxed);
        }
    });
}

/// Fails in a child that was forked from a process in which the engine had started.
///
/// # Errors
/// [`Kind::Forked`], with the remedy.
pub fn refuse_fork() -> Result<()> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(forked());
    }
    Ok(())
}

/// The error of a call in a child that only its parent may make.
pub(crate) fn forked() -> Error {
    Error::new(
        Kind::Forked,
        "this process was forked from one that had already used Penstock",
    )
    .remedy("start workers with spawn or forkserver instead of fork, or use Penstock only in the children")
}
