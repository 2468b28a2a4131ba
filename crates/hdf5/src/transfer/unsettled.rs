//! How many things there are for which a call of HDF5 may have to wait, or which are left to be told: pending
//! operations and unfinished storage.
//!
//! Their number has an address, so that Python reads it from memory: a call would take longer than the rest of
//! what Penstock adds to a small read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// There were so many of one kind before, and are so many now. The caller holds the lock of the kind.
pub(super) fn changed(before: usize, now: usize) {
    if now != before {
        COUNT.fetch_add((now as u64).wrapping_sub(before as u64), Relaxed);
    }
}

pub(super) fn is_none() -> bool {
    COUNT.load(Relaxed) == 0
}

/// Where the number is as long as the process lives. It changes at any time.
pub fn address() -> *const u64 {
    COUNT.as_ptr()
}
