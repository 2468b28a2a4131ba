//! The pending operations of the process, and which of them another operation must wait for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use penstock_engine::Recover;
use penstock_engine::error::Error;
use penstock_engine::refuse_fork;
use penstock_sys::hdf5::Hdf5;

use super::access::{Access, AccessSet, FileKey};
use super::box_index::Index;
use super::unreported_failures::Failures;
use crate::transfer::hdf5_state::{changed, has_nothing_pending};

/// How much of an operation a thread carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Queued work stays queued.
    Begun,
    /// Everything except work that comes after other operations, which needs a surrounding call of
    /// HDF5.
    Bytes,
    /// Everything.
    All,
}

/// Returns the time that is left; `None` without a time limit.
pub type Left<'a> = &'a dyn Fn() -> Option<Duration>;

/// An operation that may be in flight, for operations that come after it.
///
/// Its methods are called by threads that are inside a call of its HDF5, or hold the lock that
/// guards it.
pub trait Pending: Send + Sync {
    /// Does what only this thread can do, and waits for the rest until the time limit. Returns
    /// whether the operation has ended, or cannot be waited for because this thread is inside it.
    fn go_on(self: Arc<Self>, left: Left<'_>, effort: Effort) -> bool;

    /// Waits until the operation has ended, as far as this thread can wait for it now.
    fn finish(self: Arc<Self>);

    /// Returns whether the operation has stopped, even if its failure is not reported yet.
    fn has_ended(&self) -> bool;

    /// Begins queued work, on any thread.
    fn begin(&self) {}

    /// Returns whether a request exists that will report its outcome.
    fn has_request(&self) -> bool;

    /// Returns whether its failure is added to these unreported failures.
    fn reports_to(&self, _failures: &Arc<Failures>) -> bool {
        false
    }

    /// Returns whether its last step waits until this thread is in no call in which HDF5 cannot flush a
    /// file. All its bytes have moved.
    fn is_postponed(&self) -> bool {
        false
    }

    /// Returns whether it has ended and its outcome needs no report any more.
    fn is_over(&self) -> bool;

    /// Returns the failure of a write to the open file with this number, if it was not reported and no
    /// request will report it. The caller must report it.
    fn unreported_failure(&self, _file: u64) -> Option<Error> {
        None
    }

    /// Records that its failure was reported.
    fn mark_reported(&self) {}

    /// Returns whether any thread may drop it. Otherwise its drop releases something of HDF5's, so that
    /// the thread must be inside HDF5 or hold the lock that guards it.
    fn drops_anywhere(&self) -> bool {
        false
    }

    /// Returns whether [`forget`] must finish it before its HDF5 closes.
    fn finishes_at_close(&self) -> bool {
        false
    }

    /// Returns whether it is finished at process exit without a surrounding call of HDF5.
    fn finishes_at_exit(&self) -> bool {
        false
    }
}

/// A copy of HDF5. Only threads that call this copy make progress on its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy(usize);

impl Copy {
    /// Returns the copy to which a table of functions belongs.
    pub fn of(hdf5: &Hdf5) -> Copy {
        Copy::of_address(hdf5.copy())
    }

    /// Returns the copy with a function at this address.
    pub(in crate::transfer) const fn of_address(address: usize) -> Copy {
        Copy(address)
    }
}

struct Entry<T> {
    copy: Copy,
    sets: Vec<AccessSet>,
    operation: T,
}

impl<T> Entry<T> {
    fn writes(&self) -> bool {
        self.sets.iter().any(|set| set.access() == Access::Write)
    }

    fn is_before(&self, copy: Copy, set: &AccessSet) -> bool {
        self.copy == copy && self.sets.iter().any(|own| own.conflicts(set))
    }
}

/// Operations in the order of their submission.
pub(in crate::transfer) struct Table<T> {
    entries: BTreeMap<u64, Entry<T>>,
    index: Index,
    writers: usize,
    next: u64,
    /// Number of operations at which [`enter`] and [`enter_on_any_thread`] remove those that are over.
    prune_at: usize,
}

const FEW: usize = 64;

impl<T: Clone> Table<T> {
    pub(in crate::transfer) const fn new() -> Table<T> {
        Table {
            entries: BTreeMap::new(),
            index: Index::new(),
            writers: 0,
            next: 0,
            prune_at: FEW,
        }
    }

    /// Adds an operation and returns its unique number.
    pub(in crate::transfer) fn enter(
        &mut self,
        copy: Copy,
        sets: Vec<AccessSet>,
        operation: T,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        self.index.add(number, &sets);
        let entry = Entry {
            copy,
            sets,
            operation,
        };
        self.writers += usize::from(entry.writes());
        self.entries.insert(number, entry);
        number
    }

    pub(in crate::transfer) fn leave(&mut self, number: u64) -> Option<T> {
        let entry = self.entries.remove(&number)?;
        self.index.remove(number, &entry.sets);
        self.writers -= usize::from(entry.writes());
        Some(entry.operation)
    }

    pub(in crate::transfer) fn prune(&mut self, is_over: impl Fn(&T) -> bool) -> Vec<T> {
        let entries = self.entries.iter();
        let over = entries.filter(|(_, entry)| is_over(&entry.operation));
        let over: Vec<u64> = over.map(|(number, _)| *number).collect();
        let gone = over.into_iter().filter_map(|number| self.leave(number));
        gone.collect()
    }

    /// As [`prune`](Self::prune), but removes only the oldest of many operations, up to the first for which
    /// `is_over` is false. So its time does not grow with the number of pending operations.
    pub(in crate::transfer) fn prune_quickly(&mut self, is_over: impl Fn(&T) -> bool) -> Vec<T> {
        let mut over = Vec::new();
        while self.entries.len() > FEW
            && let Some((number, entry)) = self.entries.first_key_value()
        {
            if !is_over(&entry.operation) {
                return over;
            }
            let number = *number;
            over.extend(self.leave(number));
        }
        over.extend(self.prune(is_over));
        over
    }

    /// Returns whether no operation can conflict with an access set: reads do not wait for reads, of
    /// which there may be thousands.
    pub(in crate::transfer) fn is_free_for(&self, set: &AccessSet) -> bool {
        self.writers == 0 && set.access() == Access::Read
    }

    /// Returns the operations of a copy of HDF5 that conflict with an access set or for which
    /// `also` is true.
    pub(in crate::transfer) fn before_or(
        &self,
        copy: Copy,
        set: &AccessSet,
        also: impl Fn(&T) -> bool,
    ) -> Vec<T> {
        self.chosen(|entry| {
            entry.is_before(copy, set) || entry.copy == copy && also(&entry.operation)
        })
    }

    /// Returns the operations of a copy of HDF5 that conflict with an access set.
    pub(in crate::transfer) fn before(&self, copy: Copy, set: &AccessSet) -> Vec<T> {
        let near = self.near(set).filter(|entry| entry.is_before(copy, set));
        near.map(|entry| entry.operation.clone()).collect()
    }

    /// Returns all operations that conflict with an access set, and some others.
    fn near(&self, set: &AccessSet) -> Box<dyn Iterator<Item = &Entry<T>> + '_> {
        match self.index.near(set) {
            Some(near) => Box::new(near.into_iter().filter_map(|at| self.entries.get(&at))),
            None => Box::new(self.entries.values()),
        }
    }

    /// Returns whether an operation of a copy of HDF5 for which `is_there` is true conflicts with an
    /// access set.
    pub(in crate::transfer) fn has_before(
        &self,
        copy: Copy,
        set: &AccessSet,
        is_there: impl Fn(&T) -> bool,
    ) -> bool {
        self.near(set)
            .any(|entry| entry.is_before(copy, set) && is_there(&entry.operation))
    }

    pub(in crate::transfer) fn in_file(&self, copy: Copy, file: &FileKey) -> Vec<T> {
        self.chosen(|entry| entry.copy == copy && entry.sets.iter().any(|own| own.is_in(file)))
    }

    pub(in crate::transfer) fn of_copy(&self, copy: Copy) -> impl Iterator<Item = &T> {
        let of_copy = self
            .entries
            .values()
            .filter(move |entry| entry.copy == copy);
        of_copy.map(|entry| &entry.operation)
    }

    pub(in crate::transfer) fn are_all(&self, is_so: impl Fn(&T) -> bool) -> bool {
        self.entries.values().all(|entry| is_so(&entry.operation))
    }

    pub(in crate::transfer) fn len(&self) -> usize {
        self.entries.len()
    }

    fn chosen(&self, is_chosen: impl Fn(&Entry<T>) -> bool) -> Vec<T> {
        let chosen = self.entries.values().filter(|entry| is_chosen(entry));
        chosen.map(|entry| entry.operation.clone()).collect()
    }
}

/// A pending operation, shared by the threads that wait for it.
pub type Shared = Arc<dyn Pending>;

static PENDING: Mutex<Table<Shared>> = Mutex::new(Table::new());

/// Locks the table. Returns `None` in the child of a fork, where no operation makes progress:
/// pending operations belong to the parent, which may have held the lock.
fn pending() -> Option<MutexGuard<'static, Table<Shared>>> {
    refuse_fork().ok()?;
    Some(PENDING.lock().recover())
}

/// Calls `act` with the table. Removed operations are dropped after the lock is released: dropping
/// the last handle of an operation closes identifiers, which may call this module again.
fn with<T>(nothing: T, act: impl FnOnce(&mut Table<Shared>) -> (T, Vec<Shared>)) -> T {
    let Some(mut table) = pending() else {
        return nothing;
    };
    let before = table.len();
    let (answer, gone) = act(&mut table);
    changed(before, table.len());
    drop(table);
    drop(gone);
    answer
}

/// Calls `act` with the table, after `prune` has removed operations that are over.
fn with_pruned<T>(
    prune: fn(&mut Table<Shared>) -> Vec<Shared>,
    nothing: T,
    act: impl FnOnce(&mut Table<Shared>) -> T,
) -> T {
    if has_nothing_pending() {
        return nothing;
    }
    with(nothing, |table| {
        let gone = prune(table);
        (act(table), gone)
    })
}

fn all(table: &mut Table<Shared>) -> Vec<Shared> {
    table.prune(|operation| operation.is_over())
}

/// Removes only the oldest of many operations that are over.
fn few(table: &mut Table<Shared>) -> Vec<Shared> {
    table.prune_quickly(|operation| operation.is_over())
}

/// Adds an operation, for which later ones wait. Returns its number for [`leave`].
pub fn enter(hdf5: &Hdf5, sets: Vec<AccessSet>, operation: &Shared) -> u64 {
    enter_and_prune(hdf5, sets, operation, |operation| operation.is_over())
}

/// As [`enter`], on a thread that may neither call HDF5 nor drop what belongs to it. Any thread may drop
/// the operation.
pub fn enter_on_any_thread(hdf5: &Hdf5, sets: Vec<AccessSet>, operation: &Shared) -> u64 {
    enter_and_prune(hdf5, sets, operation, |operation| {
        operation.drops_anywhere() && operation.is_over()
    })
}

/// Adds an operation. Sometimes removes those for which `can_go` is true, so that a program that only
/// reads, and never waits, has few ended operations in the table.
fn enter_and_prune(
    hdf5: &Hdf5,
    sets: Vec<AccessSet>,
    operation: &Shared,
    can_go: impl Fn(&Shared) -> bool,
) -> u64 {
    with(0, |table| {
        let number = table.enter(Copy::of(hdf5), sets, Arc::clone(operation));
        if table.len() < table.prune_at {
            return (number, Vec::new());
        }
        let gone = table.prune(can_go);
        table.prune_at = (2 * table.len()).max(FEW);
        (number, gone)
    })
}

/// Removes the operation that [`enter`] has numbered.
pub fn leave(number: u64) {
    with((), |table| ((), table.leave(number).into_iter().collect()));
}

/// Returns whether no operation is in flight. Failures may still be unreported.
pub fn is_idle() -> bool {
    with_pruned(few, true, |table| {
        table.are_all(|operation| operation.has_ended())
    })
}

/// Returns whether no operation is in flight and no failure unreported.
pub fn is_empty() -> bool {
    with_pruned(few, true, |table| table.len() == 0)
}

/// Returns the pending operations that conflict with an access set or for which `also` is true.
pub fn before_or(hdf5: &Hdf5, set: &AccessSet, also: impl Fn(&Shared) -> bool) -> Vec<Shared> {
    with_pruned(all, Vec::new(), |table| {
        table.before_or(Copy::of(hdf5), set, also)
    })
}

/// Returns the pending operations that conflict with an access set.
pub fn before(hdf5: &Hdf5, set: &AccessSet) -> Vec<Shared> {
    if has_nothing_pending() {
        return Vec::new();
    }
    with(Vec::new(), |table| {
        if table.is_free_for(set) {
            return (Vec::new(), Vec::new());
        }
        let gone = few(table);
        let mut before = table.before(Copy::of(hdf5), set);
        before.retain(|operation| !operation.is_over());
        (before, gone)
    })
}

/// Returns whether a pending operation conflicts with an access set. Any thread may call it.
pub fn has_before(hdf5: &Hdf5, set: &AccessSet) -> bool {
    let has_any = |table: &mut Table<Shared>| {
        !table.is_free_for(set) && table.has_before(Copy::of(hdf5), set, |o| !o.is_over())
    };
    !has_nothing_pending() && with(false, |table| (has_any(table), Vec::new()))
}

/// Returns the operations that touch a file, including failed ones that were not reported yet.
pub fn in_file(hdf5: &Hdf5, file: &FileKey) -> Vec<Shared> {
    with_pruned(all, Vec::new(), |table| table.in_file(Copy::of(hdf5), file))
}

/// Returns up to `most` operations that have not ended, oldest first. A write that has failed stays in the
/// table until its failure is reported, which may be never.
pub fn oldest(hdf5: &Hdf5, most: usize) -> Vec<Shared> {
    with_pruned(few, Vec::new(), |table| {
        let of_copy = table.of_copy(Copy::of(hdf5));
        let running = of_copy.filter(|operation| !operation.has_ended());
        running.take(most).cloned().collect()
    })
}

/// Finishes operations of the copy of HDF5 with a function at this address, which closes: when it is
/// called again, it gives their identifiers to other objects. Discards unreported failures, because
/// no file is left that could report them. The thread is inside that copy.
pub fn forget(copy: usize) {
    let copy = Copy::of_address(copy);
    let of_copy = |table: &mut Table<Shared>| table.of_copy(copy).cloned().collect();
    for operation in with_pruned(all, Vec::new(), of_copy) {
        if operation.finishes_at_close() {
            Arc::clone(&operation).finish();
        }
        if operation.has_ended() {
            operation.mark_reported();
        }
    }
}

/// Waits for the pending operations that conflict with an access set. Returns how many have ended
/// meanwhile: this excludes those that had ended before and stay because their failure is
/// unreported, and those that this thread cannot wait for.
pub fn finish_before(hdf5: &Hdf5, set: &AccessSet) -> usize {
    let before = before(hdf5, set);
    let goes_on = before.iter().filter(|operation| !operation.has_ended());
    let finish = |operation: &&Shared| {
        Arc::clone(operation).finish();
        operation.has_ended()
    };
    goes_on.filter(finish).count()
}
