//! Functions of the application that HDF5 calls for each link, object or attribute. Meanwhile it keeps
//! parts of the metadata in use, so that flushing and closing the file would fail.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
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

/// The process exits from inside such a function: HDF5 closes all.
pub fn ends() {
    DEPTH.set(0);
}
