//! Counts what a call of HDF5 may have to wait for or to report: pending operations and unfinished
//! storage.
//!
//! The number has a fixed address, so that Python reads it from memory: a call would take longer
//! than the rest of what Penstock adds to a small read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Records that the number of operations, or of unfinished storages, has changed from `before` to `now`. The caller
/// has the lock of their table.
pub(in crate::transfer) fn changed(before: usize, now: usize) {
    if now != before {
        COUNT.fetch_add((now as u64).wrapping_sub(before as u64), Relaxed);
    }
}

pub(in crate::transfer) fn is_none() -> bool {
    COUNT.load(Relaxed) == 0
}

/// Returns the address of the number, which is valid for the life of the process. The number may
/// change at any time.
pub fn address() -> *const u64 {
    COUNT.as_ptr()
}
