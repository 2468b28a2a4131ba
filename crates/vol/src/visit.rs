//! Whether the thread is inside an iteration of HDF5, or inside its closing.
//!
//! HDF5 calls functions of the application for each link, object or attribute. During the iteration it keeps
//! parts of the metadata in use, and flushing or closing the file would fail. When the library closes, no
//! iteration is in progress.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static IS_CLOSING: Cell<bool> = const { Cell::new(false) };
}

/// While it exists, this thread runs no deferred operation, unless the application waits for one without a
/// time limit.
pub(crate) struct Visit(());

impl Visit {
    pub(crate) fn begin() -> Visit {
        DEPTH.set(DEPTH.get() + 1);
        Visit(())
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}

pub(crate) fn is_visiting() -> bool {
    DEPTH.get() > 0
}

/// Runs `act` while the library closes. It ends all iterations, because the process may exit from inside a
/// function that HDF5 calls in one.
pub(crate) fn while_closing(act: impl FnOnce()) {
    DEPTH.set(0);
    IS_CLOSING.set(true);
    act();
    IS_CLOSING.set(false);
}

pub(crate) fn is_closing() -> bool {
    IS_CLOSING.get()
}
