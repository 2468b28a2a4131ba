//! The calls of HDF5 in progress on this thread in which HDF5 cannot flush a file.

use std::cell::Cell;

thread_local! {
    static IN_CALLS: Cell<usize> = const { Cell::new(0) };
}

/// A call of HDF5's own connector in progress on this thread. HDF5 may have parts of a file in use, and
/// makes callbacks: for each link, object, attribute or chunk, for external links, filters and
/// conversions. A flush in a callback fails with "cache has protected items" (1.14.4, 2.0.0), and so does
/// every later flush of the file.
pub struct InCall(());

impl InCall {
    /// Marks the beginning of a call. Dropping the value marks its end.
    pub fn begin() -> InCall {
        IN_CALLS.set(IN_CALLS.get() + 1);
        InCall(())
    }

    /// Marks the end of a call whose value was forgotten.
    pub fn end_forgotten() {
        drop(InCall(()));
    }

    /// Forgets the calls in progress. A process that exits inside of them never returns to them.
    pub fn forget_all() {
        IN_CALLS.set(0);
    }
}

impl Drop for InCall {
    fn drop(&mut self) {
        IN_CALLS.set(IN_CALLS.get().saturating_sub(1));
    }
}

/// Returns whether HDF5 may flush or close a file on this thread now, because no call is in progress in
/// which it uses parts of a file.
pub fn may_flush() -> bool {
    IN_CALLS.get() == 0
}
