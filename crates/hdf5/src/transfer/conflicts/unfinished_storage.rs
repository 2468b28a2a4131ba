//! Contiguous storage whose allocation HDF5 has not finished.
//!
//! HDF5 (1.14.4, 2.2.0) sets the address of the storage in memory, then writes the fill values, and
//! then records the address in the file. If the fill values cannot be written, it keeps the address
//! in memory: it carries out the next write, and the file never records where the elements lie. It
//! forgets the address when the dataset is closed everywhere.

use std::sync::{Mutex, MutexGuard};

use penstock_engine::Recover;
use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::{
    H5D_FILL_TIME_IFSET, H5D_FILL_TIME_NEVER, H5D_FILL_VALUE_USER_DEFINED, hid_t,
};

use crate::dataset::{creation_properties, fill_state};
use crate::library::Session;
use crate::transfer::conflicts;
use crate::transfer::hdf5_state::{changed, drop_at_close, has_nothing_pending};

/// Key of a dataset, which all its identifiers have in common: copy of HDF5, number of the file, token.
type Key = (usize, (u64, [u8; 16]));

static UNFINISHED: Mutex<Vec<Key>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<Key>> {
    UNFINISHED.lock().recover()
}

/// Returns whether no dataset has unfinished storage.
pub fn is_none() -> bool {
    has_nothing_pending() || unfinished().is_empty()
}

fn change(act: impl FnOnce(&mut Vec<Key>)) {
    let mut unfinished = unfinished();
    let before = unfinished.len();
    act(&mut unfinished);
    changed(before, unfinished.len());
}

/// Makes HDF5 allocate the storage of a dataset that has none, and records whether the allocation
/// stopped halfway.
pub fn watched(
    session: &Session<'_>,
    dataset: hid_t,
    allocate: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let key = key(session, dataset)?;
    change(|unfinished| unfinished.retain(|other| *other != key));
    allocate().inspect_err(|_| {
        if has_storage(session, dataset) && is_filled(session, dataset).unwrap_or(true) {
            record(session, key);
        }
    })
}

fn record(session: &Session<'_>, key: Key) {
    drop_at_close(session.hdf5, &[conflicts::forget, forget]);
    change(|unfinished| unfinished.push(key));
}

/// Returns whether the write by HDF5 itself that has just failed in this thread stopped halfway through the
/// allocation of storage. The caller then passes the dataset to [`note`].
pub fn has_stopped(session: &Session<'_>) -> bool {
    // It writes the fill values, right after the address has been set.
    session.has_failed_in("H5D__init_storage")
}

/// Records a dataset in whose allocation a write by HDF5 itself has stopped halfway. Clears the error
/// stack.
pub fn note(session: &Session<'_>, dataset: hid_t) -> Result<()> {
    if has_storage(session, dataset) {
        record(session, key(session, dataset)?);
    }
    Ok(())
}

/// Returns whether HDF5 writes fill values when it allocates the storage. Otherwise nothing can fail
/// between the address in memory and that in the file.
fn is_filled(session: &Session<'_>, dataset: hid_t) -> Result<bool> {
    let (time, value) = fill_state(session, &creation_properties(session, dataset)?)?;
    Ok(match time {
        H5D_FILL_TIME_NEVER => false,
        H5D_FILL_TIME_IFSET => value == H5D_FILL_VALUE_USER_DEFINED,
        _ => true,
    })
}

/// Returns an error if the storage of the dataset is unfinished.
pub fn refuse(session: &Session<'_>, dataset: hid_t) -> Result<()> {
    if is_none() {
        return Ok(());
    }
    let key = key(session, dataset)?;
    if !unfinished().contains(&key) {
        return Ok(());
    }
    if !has_storage(session, dataset) {
        // The dataset was closed and opened again.
        change(|unfinished| unfinished.retain(|other| *other != key));
        return Ok(());
    }
    Err(Error::new(
        Kind::Io,
        "HDF5 allocated the dataset's storage but could not write the fill values, so the file \
         does not record the storage: data written there would be lost",
    )
    .remedy("close the dataset wherever it is open, free space, and open it again"))
}

/// Drops all entries of a copy of HDF5 that has no open dataset any more.
pub fn forget(hdf5: usize) {
    change(|unfinished| unfinished.retain(|key| key.0 != hdf5));
}

fn has_storage(session: &Session<'_>, dataset: hid_t) -> bool {
    // SAFETY: takes an identifier, which HDF5 checks.
    unsafe { (session.hdf5.H5Dget_storage_size)(dataset) > 0 }
}

fn key(session: &Session<'_>, dataset: hid_t) -> Result<Key> {
    Ok((session.hdf5.copy(), session.object(dataset)?))
}
