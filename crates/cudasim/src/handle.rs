//! Handles of objects that the client names: contexts, streams, events, modules, files.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A handle that no other object ever had. It is no address of anything.
pub(crate) fn new_handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x5000_0000_0000);
    NEXT.fetch_add(0x10, Ordering::Relaxed)
}
