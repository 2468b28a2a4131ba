//! Which operations of the process are pending, and which of them another one has to wait for.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use penstock_engine::error::Error;
use penstock_engine::refuse_fork;
use penstock_sys::hdf5::Hdf5;

use super::access::{AccessSet, FileKey};
use super::failures::Failures;
use crate::transfer::unsettled;

/// How much of an operation a thread is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// What is queued stays so.
    Begun,
    /// Not what comes after other operations: it needs a call of HDF5 around it.
    Bytes,
    /// All of it.
    All,
}

/// The time that is left, or none if it takes as long as it takes.
pub type Left<'a> = &'a dyn Fn() -> Option<Duration>;

/// An operation that may be under way, as seen by what comes after it.
///
/// It is used by threads that are inside a call of its HDF5, or hold the lock that guards it.
pub trait Pending: Send + Sync {
    /// Does what only this thread can do, and waits for the rest as long as there is time. Whether the
    /// operation has ended, or this thread cannot wait for it because it is in the middle of it.
    fn go_on(self: Arc<Self>, left: Left<'_>, effort: Effort) -> bool;

    /// Waits until it has ended, as far as this thread can wait for it now.
    fn finish(self: Arc<Self>);

    /// Whether nothing goes on any more, though it may have failed and nobody was told.
    fn has_ended(&self) -> bool;

    /// Begins what is queued, on any thread.
    fn begin(&self) {}

    /// Whether somebody holds a request of it, by which its outcome is asked for.
    fn has_request(&self) -> bool;

    /// Whether its failure is told there.
    fn tells(&self, _failures: &Arc<Failures>) -> bool {
        false
    }

    /// Whether nobody has to wait for it any more, nor has to be told of its outcome.
    fn is_over(&self) -> bool;

    /// Why a write to the open file with this number has failed, if nobody was told so, nor will be by a
    /// request. The caller tells.
    fn untold_failure(&self, _file: u64) -> Option<Error> {
        None
    }

    /// Whoever holds it was told of its failure.
    fn told(&self) {}

    /// Whether it is finished when the process exits, without a call of HDF5 around it.
    fn finishes_at_exit(&self) -> bool {
        false
    }
}

/// A copy of HDF5: its operations are carried on by threads that call it, never by those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy(usize);

impl Copy {
    /// The copy that a table of functions belongs to.
    pub fn of(hdf5: &Hdf5) -> Copy {
        Copy::of_address(hdf5.copy())
    }

    /// The copy with a function at this address.
    pub(super) const fn of_address(address: usize) -> Copy {
        Copy(address)
    }
}

struct Entry<T> {
    number: u64,
    copy: Copy,
    sets: Vec<AccessSet>,
    operation: T,
}

/// Operations in the order of their submission.
pub(super) struct Table<T> {
    entries: Vec<Entry<T>>,
    next: u64,
}

impl<T: Clone> Table<T> {
    pub(super) const fn new() -> Table<T> {
        Table {
            entries: Vec::new(),
            next: 0,
        }
    }

    /// Adds an operation. The number given back tells it from all others.
    pub(super) fn enter(&mut self, copy: Copy, sets: Vec<AccessSet>, operation: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.push(Entry {
            number,
            copy,
            sets,
            operation,
        });
        number
    }

    pub(super) fn leave(&mut self, number: u64) -> Option<T> {
        let at = self.entries.binary_search_by_key(&number, |e| e.number);
        at.ok().map(|at| self.entries.remove(at).operation)
    }

    /// Takes those out of which `is_over` says so.
    pub(super) fn prune(&mut self, is_over: impl Fn(&T) -> bool) -> Vec<T> {
        let mut over = Vec::new();
        self.entries.retain(|entry| {
            let is_over = is_over(&entry.operation);
            if is_over {
                over.push(entry.operation.clone());
            }
            !is_over
        });
        over
    }

    /// Those of a copy of HDF5 that conflict with an access set, or of which `also` says so.
    pub(super) fn before_or(
        &self,
        copy: Copy,
        set: &AccessSet,
        also: impl Fn(&T) -> bool,
    ) -> Vec<T> {
        let is_before = |entry: &&Entry<T>| {
            entry.copy == copy
                && (entry.sets.iter().any(|own| own.conflicts(set)) || also(&entry.operation))
        };
        self.chosen(is_before)
    }

    /// Those that read or write a file.
    pub(super) fn in_file(&self, copy: Copy, file: &FileKey) -> Vec<T> {
        let is_in =
            |entry: &&Entry<T>| entry.copy == copy && entry.sets.iter().any(|own| own.is_in(file));
        self.chosen(is_in)
    }

    /// The oldest ones of a copy of HDF5.
    pub(super) fn oldest(&self, copy: Copy, most: usize) -> Vec<T> {
        let of_copy = self.entries.iter().filter(|entry| entry.copy == copy);
        of_copy
            .take(most)
            .map(|entry| entry.operation.clone())
            .collect()
    }

    pub(super) fn are_all(&self, is_so: impl Fn(&T) -> bool) -> bool {
        self.entries.iter().all(|entry| is_so(&entry.operation))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn chosen(&self, is_chosen: impl Fn(&&Entry<T>) -> bool) -> Vec<T> {
        let chosen = self.entries.iter().filter(is_chosen);
        chosen.map(|entry| entry.operation.clone()).collect()
    }
}

/// A pending operation, shared by those who wait for it.
pub type Shared = Arc<dyn Pending>;

static PENDING: Mutex<Table<Shared>> = Mutex::new(Table::new());

/// `None` in the child of a fork, where nothing goes on: what was pending is the parent's, which may
/// have held the lock.
fn pending() -> Option<MutexGuard<'static, Table<Shared>>> {
    refuse_fork().ok()?;
    Some(PENDING.lock().unwrap_or_else(|e| e.into_inner()))
}

/// Does `act` with the table. What leaves it is dropped without its lock: with the last handle of an
/// operation identifiers go, whose closing may come back here.
fn with<T>(nothing: T, act: impl FnOnce(&mut Table<Shared>) -> (T, Vec<Shared>)) -> T {
    let Some(mut table) = pending() else {
        return nothing;
    };
    let before = table.len();
    let (answer, gone) = act(&mut table);
    unsettled::changed(before, table.len());
    drop(table);
    drop(gone);
    answer
}

fn with_current<T>(nothing: T, act: impl FnOnce(&mut Table<Shared>) -> T) -> T {
    if unsettled::is_none() {
        return nothing;
    }
    with(nothing, |table| {
        let gone = table.prune(|operation| operation.is_over());
        (act(table), gone)
    })
}

/// Makes it one that others wait for. What it gives back takes it out.
pub fn enter(hdf5: &Hdf5, sets: Vec<AccessSet>, operation: &Shared) -> u64 {
    with(0, |table| {
        let number = table.enter(Copy::of(hdf5), sets, Arc::clone(operation));
        (number, Vec::new())
    })
}

/// Takes an operation out that [`enter`] has numbered.
pub fn leave(number: u64) {
    with((), |table| ((), table.leave(number).into_iter().collect()));
}

/// Whether nothing is under way, but for failures that are left to be told; then there is no order to keep.
pub fn is_idle() -> bool {
    with_current(true, |table| {
        table.are_all(|operation| operation.has_ended())
    })
}

/// Whether nothing is under way, and no failure left to be told.
pub fn is_empty() -> bool {
    with_current(true, |table| table.len() == 0)
}

/// The pending operations that conflict with an access set, and those of which `also` says so.
pub fn before_or(hdf5: &Hdf5, set: &AccessSet, also: impl Fn(&Shared) -> bool) -> Vec<Shared> {
    with_current(Vec::new(), |table| {
        table.before_or(Copy::of(hdf5), set, also)
    })
}

/// The pending operations that conflict with an access set.
pub fn before(hdf5: &Hdf5, set: &AccessSet) -> Vec<Shared> {
    before_or(hdf5, set, |_| false)
}

/// Those that touch a file, with those of which nobody was told yet that they have failed.
pub fn in_file(hdf5: &Hdf5, file: &FileKey) -> Vec<Shared> {
    with_current(Vec::new(), |table| table.in_file(Copy::of(hdf5), file))
}

/// Up to `most` operations, the oldest first.
pub fn oldest(hdf5: &Hdf5, most: usize) -> Vec<Shared> {
    with_current(Vec::new(), |table| table.oldest(Copy::of(hdf5), most))
}

/// No file is there any more that could tell of the failures of operations, of the copy of HDF5 with a
/// function at this address.
pub fn forget(copy: usize) {
    let copy = Copy::of_address(copy);
    for operation in with_current(Vec::new(), |table| table.oldest(copy, usize::MAX)) {
        if operation.has_ended() {
            operation.told();
        }
    }
}

/// Waits for the pending operations that conflict with an access set. How many have ended meanwhile:
/// not those that had before and stay because nobody was told of their failure, nor those that this thread
/// cannot wait for.
pub fn finish_before(hdf5: &Hdf5, set: &AccessSet) -> usize {
    let before = before(hdf5, set);
    let goes_on = before.iter().filter(|operation| !operation.has_ended());
    let finish = |operation: &&Shared| {
        Arc::clone(operation).finish();
        operation.has_ended()
    };
    goes_on.filter(finish).count()
}
