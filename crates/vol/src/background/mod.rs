//! Operations that continue after their call has returned, without a thread that calls HDF5.
//!
//! The application's threads run what needs HDF5: they plan a transfer when they submit an operation
//! ([`dataset_io`]), and hand encoded chunks to HDF5 when they wait for it
//! ([`operation`](crate::operation)). In between the
//! engine moves bytes. Operations that conflict keep the order of the program
//! ([`conflicts`]), and so does everything that the connector below does
//! with the same dataset or file.

mod budget;
mod closing;
mod dataset_io;
mod dataset_plan;
mod start;

use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::Duration;

pub(crate) use closing::{
    CLOSE_DATASET, CLOSE_FILE, defer, file_identity, finish_before_replacing, finish_conflicting,
    finish_deferred_close,
};
pub(crate) use dataset_io::{DatasetCall, Disposition, read_or_write};

use penstock_sys::hdf5::connector::H5I_GROUP;

use super::access_sets::file_access;
use super::calling_library::CallingLibrary;
use super::operation::AsyncOperation;
use super::policy::StartsAt;
use super::under::Under;
use penstock_hdf5::transfer::conflicts::{self, Access, AccessSet, Effort, Shared};
use penstock_hdf5::transfer::inside;

/// Whether an operation may be pending that conflicts with a call on this object. There is none on files that
/// processes share.
pub(crate) fn may_conflict(under: &Under) -> bool {
    !under.is_internal && !under.container.is_parallel && !conflicts::is_idle()
}

/// Returns the pending operations that conflict with an access set of `under`. For a whole file it also returns
/// the operations whose failures only this file reports: an external link may lead to another file.
fn conflicting_with(under: &Under, set: &AccessSet) -> Vec<Shared> {
    let failures = &under.container.policy.failures;
    let is_reported =
        |operation: &Shared| matches!(set, AccessSet::File(_)) && operation.tells(failures);
    conflicts::before_or(under.container.below.library.hdf5, set, is_reported)
}

/// Adds an operation to the pending ones. Operations that conflict with one of its access sets wait for it.
fn add_pending(library: CallingLibrary, sets: Vec<AccessSet>, operation: &Arc<AsyncOperation>) {
    let shared: Shared = Arc::clone(operation) as Shared;
    let number = conflicts::enter(library.hdf5, sets, &shared);
    operation.set_leave(Box::new(move || conflicts::leave(number)));
}

/// Waits for the pending operations that conflict with an access set. Returns how many have ended.
fn wait_for_conflicting(library: CallingLibrary, set: &AccessSet) -> usize {
    conflicts::finish_before(library.hdf5, set)
}

/// Waits for all pending operations.
pub(crate) fn finish_all(library: CallingLibrary) {
    wait_for_conflicting(library, &AccessSet::All(Access::Write));
}

/// Begins the queued operations that conflict with an access set.
fn begin_conflicting(library: CallingLibrary, set: &AccessSet) {
    let before = conflicts::before(library.hdf5, set);
    before.iter().for_each(|operation| operation.begin());
}

/// Begins the queued operations of a file, if the environment asks for that when a group is closed.
///
/// # Safety
/// The thread is inside the callback on `under`.
pub(crate) unsafe fn group_closes(under: &Under) {
    if under.container.policy.starts_at == StartsAt::GroupClose && may_conflict(under) {
        // SAFETY: the caller guarantees this.
        let file = unsafe { file_access(under, H5I_GROUP) };
        begin_conflicting(under.container.below.library, &file);
    }
}

/// Polls the oldest operations: runs the submitter steps that they need to continue.
pub(crate) fn poll_oldest(library: CallingLibrary) {
    /// The number of operations, which limits the cost of a call.
    const MOST: usize = 16;
    for operation in conflicts::oldest(library.hdf5, MOST) {
        operation.go_on(&|| Some(Duration::ZERO), Effort::Begun);
    }
}

/// Waits for the oldest operation. Returns false if there is none that this thread can wait for.
fn wait_for_oldest(library: CallingLibrary) -> bool {
    let oldest = conflicts::oldest(library.hdf5, 1);
    oldest
        .into_iter()
        .any(|operation| operation.go_on(&|| None, Effort::All))
}

/// Finishes transfers when the process exits, before HDF5 closes. A closing HDF5 cannot initialise a part that
/// the program has not used before, such as another kind of chunk index. The CUDA driver closes at exit, too,
/// and before HDF5 if the program has initialised it later. Functions registered last run first.
///
/// The function at exit runs inside a call of each HDF5 that has pending operations, because other threads may
/// still be inside calls.
fn finish_when_exiting(library: CallingLibrary) {
    static IN_USE: Mutex<Vec<CallingLibrary>> = Mutex::new(Vec::new());
    fn in_use() -> MutexGuard<'static, Vec<CallingLibrary>> {
        IN_USE.lock().unwrap_or_else(|e| e.into_inner())
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
            // A call would initialise a library again that has closed meanwhile.
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
