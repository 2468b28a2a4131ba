//! Operations that go on after their call has returned, without a thread that calls HDF5.
//!
//! What needs HDF5 is done on the thread that calls it: plans are made when an operation is
//! submitted ([`transfer`]), encoded chunks are handed over when it is waited for ([`operation`]). In
//! between the engine moves bytes. The order of the program is kept where it matters: an operation
//! that conflicts with pending ones comes after them ([`transfer`](penstock_hdf5::transfer)), and so does everything that the
//! connector below does with the same dataset or file.

mod about;
mod budget;
mod closing;
mod delay;
mod journal;
mod lend;
mod operation;
mod planned;
mod policy;
mod start;
mod transfer;
mod visit;

use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::Duration;

pub use about::{About, file_of, object_of};
pub use closing::{CLOSE_DATASET, CLOSE_FILE, before_end, before_open, identity, later, settle};
pub use journal::Manner;
pub use lend::{Lent, Loan, being_lent, unwrap};
pub use operation::{Operation, Outcome};
pub use policy::{Begins, Policy};
pub use transfer::{Call, Kind, Way, transfer};
pub use visit::{Visit, at_end};

use penstock_sys::hdf5::connector::H5I_GROUP;

use super::host::Host;
use super::wrapped::Under;
use penstock_hdf5::transfer::conflicts::{self, Access, AccessSet, Effort, Shared};
use penstock_hdf5::transfer::inside;

/// Whether something may be pending that what the application does with an object comes after. Nothing
/// goes on with files that processes share.
pub fn concerns(under: &Under) -> bool {
    !under.is_lent && !under.container.is_parallel && !conflicts::is_idle()
}

/// The pending operations that conflict with what is done with `under`. Where that is closing or flushing
/// a file, it comes after all whose failures only the file can tell, too: what was reached through it may
/// lie in another.
fn before_on(under: &Under, set: &AccessSet) -> Vec<Shared> {
    let failures = &under.container.policy.failures;
    let is_told =
        |operation: &Shared| matches!(set, AccessSet::File(_)) && operation.tells(failures);
    conflicts::before_or(under.container.below.host.hdf5, set, is_told)
}

/// Makes it one that others wait for, if they conflict with one of its access sets.
fn enter(host: Host, sets: Vec<AccessSet>, operation: &Arc<Operation>) {
    let shared: Shared = Arc::clone(operation) as Shared;
    let number = conflicts::enter(host.hdf5, sets, &shared);
    operation.leaves_by(Box::new(move || conflicts::leave(number)));
}

/// Waits for the pending operations that conflict with an access set. How many have ended meanwhile.
fn finish_before(host: Host, set: &AccessSet) -> usize {
    conflicts::finish_before(host.hdf5, set)
}

/// Waits for all pending operations.
pub fn finish_all(host: Host) {
    finish_before(host, &AccessSet::All(Access::Write));
}

/// Begins the queued operations that conflict with an access set, as closing what they use does.
fn begin_before(host: Host, set: &AccessSet) {
    let before = conflicts::before(host.hdf5, set);
    before.iter().for_each(|operation| operation.begin());
}

/// A group is about to be closed.
///
/// # Safety
/// The thread is inside the callback on `under`.
pub unsafe fn group_closes(under: &Under) {
    if under.container.policy.begins == Begins::GroupClose && concerns(under) {
        // SAFETY: passed on.
        let file = unsafe { file_of(under, H5I_GROUP) };
        begin_before(under.container.below.host, &file);
    }
}

/// Takes the turns that the oldest operations ask for, so that they go on though nobody waits for
/// them yet.
pub fn attend(host: Host) {
    /// Of so many, so that a call does not cost more the more is pending.
    const MOST: usize = 16;
    for operation in conflicts::oldest(host.hdf5, MOST) {
        operation.go_on(&|| Some(Duration::ZERO), Effort::Begun);
    }
}

/// Waits for the oldest operation. False if there is none that this thread can wait for.
fn finish_oldest(host: Host) -> bool {
    let oldest = conflicts::oldest(host.hdf5, 1);
    oldest
        .into_iter()
        .any(|operation| operation.go_on(&|| None, Effort::All))
}

/// Sees to it that bytes are moved when the process exits, before HDF5 ends: once it has begun to,
/// what it has not used yet cannot be used any more, such as another kind of index of chunks. The CUDA
/// driver ends then, too, and before HDF5 does if the program has begun to use it later. What is
/// arranged last comes first.
///
/// It is done inside a call of each HDF5 that has operations here, since other threads may still be
/// in them.
fn finish_before_exit(host: Host) {
    static IN_USE: Mutex<Vec<Host>> = Mutex::new(Vec::new());
    fn in_use() -> MutexGuard<'static, Vec<Host>> {
        IN_USE.lock().unwrap_or_else(|e| e.into_inner())
    }
    fn finish(host: Host) {
        for operation in conflicts::oldest(host.hdf5, usize::MAX) {
            if operation.finishes_at_exit() {
                operation.go_on(&|| None, Effort::Bytes);
            }
        }
    }
    extern "C" fn at_exit() {
        let finish_all = || {
            let hosts = in_use().clone();
            // One that has closed meanwhile must not be called: it would begin anew.
            let is_busy = |host: &Host| !conflicts::oldest(host.hdf5, 1).is_empty();
            for host in hosts.into_iter().filter(is_busy) {
                inside(host.hdf5, || finish(host));
            }
        };
        let _ = std::panic::catch_unwind(finish_all);
    }
    static ARRANGED: Once = Once::new();
    let mut hosts = in_use();
    if hosts.iter().all(|known| known.slot != host.slot) {
        hosts.push(host);
    }
    drop(hosts);
    ARRANGED.call_once(|| {
        // SAFETY: the function lives as long as the process, as this library is never closed.
        unsafe { libc::atexit(at_exit) };
    });
}
