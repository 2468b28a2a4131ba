//! Tracks whether the thread is inside a call of the connector below, or inside HDF5's closing.
//!
//! HDF5 calls functions of the application in such a call: for each link, object, attribute or
//! chunk, for external links, filters and conversions. It may hold parts of the metadata during
//! that time, and a flush or close of the file would fail. When the library closes, no call is in
//! progress.

use std::cell::Cell;

use penstock_hdf5::transfer::{InCall, may_flush};

thread_local! {
    static IS_CLOSING: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a function that the connector below calls is running. This thread then flushes
/// or closes no file. It runs no deferred operation, unless the application waits for one without a
/// time limit.
pub(crate) fn is_in_call() -> bool {
    !may_flush()
}

/// Runs `act` while the library closes. It ends all calls, because the process may exit inside a
/// function that HDF5 calls.
pub(crate) fn while_closing(act: impl FnOnce()) {
    InCall::forget_all();
    IS_CLOSING.set(true);
    act();
    IS_CLOSING.set(false);
}

pub(crate) fn is_closing() -> bool {
    IS_CLOSING.get()
}
