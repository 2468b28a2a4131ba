//! Operations that go on after their call has returned, without a thread that calls HDF5.
//!
//! What needs HDF5 is done on the thread that calls it: plans are made when an operation is
//! submitted ([`transfer`]), encoded chunks are handed over when it is waited for ([`operation`]). In
//! between the engine moves bytes. The order of the program is kept where it matters: an operation
//! that conflicts with pending ones comes after them ([`pending`]), and so does everything that the
//! connector below does with the same dataset or file.

mod about;
mod budget;
mod closing;
mod delay;
mod journal;
mod lend;
mod operation;
mod pending;
mod planned;
mod policy;
mod start;
mod transfer;
mod visit;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Once};

pub use about::{About, file_of, object_of};
pub use closing::{CLOSE_DATASET, CLOSE_FILE, Identity, before_open, identity, later, settle};
pub use journal::Manner;
pub use lend::{Lent, Loan, being_lent, unwrap};
pub use operation::{Operation, Outcome};
pub use pending::{Claim, FileKey};
pub use policy::{Begins, Policy};
pub use transfer::{Call, Kind, Way, transfer};
pub use visit::{Visit, at_end};

use penstock_engine::refuse_fork;
use penstock_sys::hdf5::connector::H5I_GROUP;

use super::host::Host;
use super::wrapped::Under;
use crate::binding::SLOTS;
use pending::Pending;

/// Of all files of the process.
static PENDING: Mutex<Pending<Arc<Operation>>> = Mutex::new(Pending::new());

/// `None` in the child of a fork, where nothing goes on: what was pending is the parent's, which may
/// have held the lock.
fn pending() -> Option<MutexGuard<'static, Pending<Arc<Operation>>>> {
    refuse_fork().ok()?;
    Some(PENDING.lock().unwrap_or_else(|e| e.into_inner()))
}

/// Whether nothing is pending; then there is no order to keep.
fn is_idle() -> bool {
    pending().is_none_or(|pending| pending.is_empty())
}

/// The pending operations that conflict with a claim.
fn before(claim: &Claim) -> Vec<Arc<Operation>> {
    pending().map_or_else(Vec::new, |pending| pending.before(claim))
}

/// As [`before`], for what is done with `under`. Where that is closing or flushing a file, it comes after
/// all whose failures only the file can tell, too: what was reached through it may lie in another.
fn before_on(under: &Under, claim: &Claim) -> Vec<Arc<Operation>> {
    let failures = &under.container.policy.failures;
    let is_told =
        |operation: &Arc<Operation>| matches!(claim, Claim::File(_)) && operation.tells(failures);
    pending().map_or_else(Vec::new, |pending| pending.before_or(claim, is_told))
}

fn oldest(most: usize) -> Vec<Arc<Operation>> {
    pending().map_or_else(Vec::new, |pending| pending.oldest(most))
}

/// Whether something may be pending that what the application does with an object comes after. Nothing
/// goes on with files that processes share.
pub fn concerns(under: &Under) -> bool {
    !under.is_lent && !under.container.is_parallel && !is_idle()
}

/// Makes it one that others wait for, if they conflict with one of its claims.
fn enter(claims: Vec<Claim>, operation: &Arc<Operation>) {
    let Some(mut entered) = pending() else { return };
    let enter = |claim| entered.enter(claim, Arc::clone(operation));
    let numbers: Vec<u64> = claims.into_iter().map(enter).collect();
    drop(entered);
    operation.leaves_by(Box::new(move || {
        for number in &numbers {
            let left = pending().and_then(|mut pending| pending.leave(*number));
            // Not under the lock: with the last handle go identifiers.
            drop(left);
        }
    }));
}

/// Waits for the pending operations that conflict with a claim. How many there were.
pub fn finish_before(claim: &Claim) -> usize {
    let before = before(claim);
    before.iter().for_each(Operation::finish);
    before.len()
}

/// Begins the queued operations that conflict with a claim, as closing what they use does.
pub fn begin_before(claim: &Claim) {
    before(claim).iter().for_each(|operation| operation.begin());
}

/// A group is about to be closed.
///
/// # Safety
/// The thread is inside the callback on `under`.
pub unsafe fn group_closes(under: &Under) {
    if under.container.policy.begins == Begins::GroupClose && concerns(under) {
        // SAFETY: passed on.
        begin_before(&unsafe { file_of(under, H5I_GROUP) });
    }
}

/// Takes the turns that the oldest operations ask for, so that they go on though nobody waits for
/// them yet.
pub fn attend() {
    /// Of so many, so that a call does not cost more the more is pending.
    const MOST: usize = 16;
    oldest(MOST).iter().for_each(Operation::attend);
}

/// Waits for the oldest operation. False if there is none that this thread can wait for.
fn finish_oldest() -> bool {
    oldest(1)
        .first()
        .is_some_and(|operation| operation.wait(None).is_some())
}

/// Sees to it that bytes are moved when the process exits, before HDF5 ends: once it has begun to,
/// what it has not used yet cannot be used any more, such as another kind of index of chunks. The CUDA
/// driver ends then, too, and before HDF5 does if the program has begun to use it later. What is
/// arranged last comes first.
///
/// It is done inside a call of each HDF5 that has operations here, since other threads may still be
/// in them.
fn finish_before_exit(host: Host) {
    extern "C" fn at_exit() {
        let _ = std::panic::catch_unwind(|| finish_inside(0));
    }
    fn finish_inside(slot: usize) {
        if is_idle() {
            return;
        }
        match (IN_USE.get(slot), Host::of(slot)) {
            (None, _) => before(&Claim::All)
                .iter()
                .for_each(Operation::finish_moving),
            (Some(is_in_use), Some(host)) if is_in_use.load(Relaxed) => {
                host.inside(&mut || finish_inside(slot + 1));
            }
            _ => finish_inside(slot + 1),
        }
    }
    static IN_USE: [AtomicBool; SLOTS] = [const { AtomicBool::new(false) }; SLOTS];
    static ARRANGED: Once = Once::new();
    if let Some(is_in_use) = IN_USE.get(host.slot) {
        is_in_use.store(true, Relaxed);
    }
    ARRANGED.call_once(|| {
        // SAFETY: the function lives as long as the process, as this library is never closed.
        unsafe { libc::atexit(at_exit) };
    });
}
