//! Calls without the GIL by many threads.
//!
//! Python puts a thread that finds the GIL taken to sleep, and wakes it when the GIL is free; on virtual
//! machines, a wake takes tens of microseconds, of the thread that wakes and of the one that is woken. A
//! thread of Penstock usually holds the GIL only for the few microseconds between two reads. So a thread that
//! returns from the library first waits, awake and for a limited time, until no other thread is between
//! two reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// The longest wait, after which the thread waits for the GIL as Python does.
static LIMIT: std::sync::LazyLock<Duration> = std::sync::LazyLock::new(|| Duration::from_micros(std::env::var("SPIN").ok().and_then(|v| v.parse().ok()).unwrap_or(30)));

/// Whether a thread that returned from the library has not entered it again. A thread that does
/// not come back leaves it set, until another thread has waited for `LIMIT` and takes its turn.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Calls a function without the GIL.
pub(crate) fn detached<T: Send>(py: Python<'_>, call: impl FnOnce() -> T + Send) -> T {
    TAKEN.store(false, Ordering::Release);
    py.detach(|| {
        let result = call();
        let mut until = None;
        while TAKEN.swap(true, Ordering::Acquire) {
            if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + *LIMIT) {
                break;
            }
            while TAKEN.load(Ordering::Relaxed) && Instant::now() < until.unwrap() {
                std::hint::spin_loop();
            }
        }
        result
    })
}
