//! Handles of the client's objects: streams, events, modules, functions, files and batches.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A unique handle, which is never reused. It is not an address.
pub(crate) fn new_handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x5000_0000_0000);
    NEXT.fetch_add(0x10, Ordering::Relaxed)
}
