//! What the thread is in the middle of.
//!
//! HDF5 calls functions of the application for each link, object or attribute. Meanwhile it keeps parts of
//! the metadata in use, so that flushing and closing the file would fail. When the library closes, on the
//! other hand, the thread is in no call on an object.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static IS_ENDING: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, what is put off on this thread stays so, unless somebody waits for it without limit.
pub struct Visit(());

impl Visit {
    pub fn begin() -> Visit {
        DEPTH.set(DEPTH.get() + 1);
        Visit(())
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}

pub fn is_visiting() -> bool {
    DEPTH.get() > 0
}

/// Runs what is done when the library closes: the process may exit from inside such a function.
pub fn at_end(act: impl FnOnce()) {
    DEPTH.set(0);
    IS_ENDING.set(true);
    act();
    IS_ENDING.set(false);
}

pub fn is_ending() -> bool {
    IS_ENDING.get()
}
