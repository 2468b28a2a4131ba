//! Waits for pending operations before a call, and adds the call's own operation.

use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::Duration;

use penstock_engine::Recover;
use penstock_engine::error::Result;

use crate::calling_library::CallingLibrary;
use crate::container::Container;
use crate::operation::AsyncOperation;
use crate::under::Under;
use penstock_hdf5::transfer::conflicts::{self, Access, AccessSet, Effort, Pending, Shared};
use penstock_hdf5::transfer::inside;

/// Returns whether a pending operation may conflict with a call on this object. Shared files that
/// only HDF5 accesses have no pending operations.
pub(crate) fn may_conflict(under: &Under) -> bool {
    !under.is_internal && may_conflict_in(&under.container)
}

/// As [`may_conflict`], for a call of the application on an object of this container.
pub(crate) fn may_conflict_in(container: &Container) -> bool {
    let is_hdf5s = container.is_parallel && container.shared.get().is_none();
    !is_hdf5s && !conflicts::is_idle()
}

/// Returns the pending operations that conflict with an access set of `under`. For a whole file it
/// also returns operations on other files, reached by external links, whose failures only this file
/// reports.
pub(crate) fn conflicting_with(under: &Under, set: &AccessSet) -> Vec<Shared> {
    let failures = &under.container.policy.failures;
    let is_reported =
        |operation: &Shared| matches!(set, AccessSet::File(_)) && operation.reports_to(failures);
    conflicts::before_or(under.library().hdf5, set, is_reported)
}

/// Adds a pending operation. Later operations that conflict with one of its access sets wait for
/// it.
pub(crate) fn add_pending(
    library: CallingLibrary,
    sets: Vec<AccessSet>,
    operation: &Arc<AsyncOperation>,
) {
    let shared: Shared = Arc::clone(operation) as Shared;
    let number = conflicts::enter(library.hdf5, sets, &shared);
    operation.set_leave(Box::new(move || conflicts::leave(number)));
}

/// Waits for the operations that conflict with an access set. Returns the failure of an operation without a
/// request, if there is one.
///
/// # Safety
/// The thread is inside a callback on `under`.
pub(crate) unsafe fn finish_conflicting(
    under: &Under,
    set: impl FnOnce() -> AccessSet,
) -> Result<()> {
    // SAFETY: the caller guarantees this.
    unsafe { finish_unreported(under, set) };
    if under.container.is_parallel {
        // The other processes make this call, so this process must make it, too.
        return Ok(());
    }
    under.container.policy.failures.take()
}

/// As [`finish_conflicting`], for a call whose failure the program may mistake for a result. A
/// later call reports the operation's failure.
///
/// # Safety
/// As for [`finish_conflicting`].
pub(crate) unsafe fn finish_unreported(under: &Under, set: impl FnOnce() -> AccessSet) {
    if may_conflict(under) {
        let before = conflicting_with(under, &set());
        before.into_iter().for_each(Pending::finish);
    }
}

/// Waits for all pending operations.
pub(crate) fn finish_all(library: CallingLibrary) {
    conflicts::finish_before(library.hdf5, &AccessSet::All(Access::Write));
}

/// Begins the queued operations that conflict with an access set.
pub(crate) fn begin_conflicting(library: CallingLibrary, set: &AccessSet) {
    let before = conflicts::before(library.hdf5, set);
    before.iter().for_each(|operation| operation.begin());
}

/// Polls the oldest operations: runs the submitter steps that they need to continue.
pub(crate) fn poll_oldest(library: CallingLibrary) {
    /// Number of operations polled, which limits the cost of a call.
    const MOST: usize = 16;
    for operation in conflicts::oldest(library.hdf5, MOST) {
        operation.go_on(&|| Some(Duration::ZERO), Effort::Begun);
    }
}

/// Waits for the oldest operation that has not ended. Returns whether it has now: false if there is none,
/// or if this thread cannot wait for it.
pub(crate) fn wait_for_oldest(library: CallingLibrary) -> bool {
    conflicts::oldest(library.hdf5, 1)
        .into_iter()
        .any(|oldest| {
            Arc::clone(&oldest).go_on(&|| None, Effort::All);
            oldest.has_ended()
        })
}

/// Finishes transfers at exit, before HDF5 closes. A closing HDF5 cannot initialise a part that the
/// program has not used before, such as another kind of chunk index. The CUDA driver closes at
/// exit, too, and before HDF5 if the program has initialised it later. Functions registered last
/// run first.
///
/// The exit function runs inside a call of each HDF5 that has pending operations, because other
/// threads may still be inside calls.
pub(crate) fn finish_when_exiting(library: CallingLibrary) {
    static IN_USE: Mutex<Vec<CallingLibrary>> = Mutex::new(Vec::new());
    fn in_use() -> MutexGuard<'static, Vec<CallingLibrary>> {
        IN_USE.lock().recover()
    }
    fn finish(library: CallingLibrary) {
        for operation in conflicts::oldest(library.hdf5, usize::MAX) {
            if operation.finishes_at_exit() {
                operation.go_on(&|| None, Effort::Bytes);
            }
        }
    }
    extern "C" fn at_exit() {
        let finish_all = || {
            let libraries = in_use().clone();
            // A call would initialise a library that has closed.
            let is_busy = |library: &CallingLibrary| !conflicts::oldest(library.hdf5, 1).is_empty();
            for library in libraries.into_iter().filter(is_busy) {
                inside(library.hdf5, || finish(library));
            }
        };
        let _ = std::panic::catch_unwind(finish_all);
    }
    static REGISTERED: Once = Once::new();
    let mut libraries = in_use();
    if libraries.iter().all(|known| known.slot != library.slot) {
        libraries.push(library);
    }
    drop(libraries);
    REGISTERED.call_once(|| {
        // SAFETY: the function exists as long as the process, which never unloads this library.
        unsafe { libc::atexit(at_exit) };
    });
}
