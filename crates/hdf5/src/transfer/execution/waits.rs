//! Waits for transfers before the program itself calls HDF5.

use std::path::Path;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::refuse_fork;
use penstock_sys::hdf5::{H5S_ALL, Hdf5, hid_t};

use crate::dataset::{DatasetInfo, FileInfo};
use crate::library::Session;
use crate::transfer::conflicts::{
    Access, AccessSet, FileKey, access_set, by_hdf5, finish_before, identity, in_file, is_empty,
    is_idle, key_of_object, unfinished_storage,
};
use crate::transfer::hdf5_state::{
    cannot_flush, flush_and_sync, inside, may_flush, refuse_elsewhere,
};
use crate::transfer::request::FileSelection;

/// Returns whether [`wait_for_dataset`] and [`wait_for_file`] would neither wait nor report
/// anything. Always true in the child of a fork, where a thread of the parent may have held a lock
/// at the fork.
pub fn nothing_is_pending() -> bool {
    refuse_fork().is_err() || (is_empty() && unfinished_storage::is_none())
}

/// Waits for the transfers that must precede HDF5's own access to a dataset. Returns an error if
/// HDF5 has stopped while it allocated this dataset: writes would be lost, and reads would return
/// unfilled bytes. See [`unfinished_storage`].
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn wait_for_dataset(hdf5: &'static Hdf5, dataset: hid_t, access: Access) -> Result<()> {
    if is_idle() && unfinished_storage::is_none() {
        return Ok(());
    }
    inside(hdf5, || {
        // SAFETY: upheld by the caller.
        let session = unsafe { Session::begin(hdf5) };
        unfinished_storage::refuse(&session, dataset)?;
        let whole = FileSelection::Space(H5S_ALL);
        // Without a description, wait for every conflicting transfer in any file.
        let set = DatasetInfo::read(&session, dataset)
            .and_then(|info| access_set(&session, (dataset, whole), &info, access))
            .unwrap_or(None);
        finish_before(hdf5, &by_hdf5(set.as_ref(), access));
        Ok(())
    })
}

/// Waits for all transfers of the file of an object, and returns the first failure of a write to it
/// that was not reported yet. Files are identified by HDF5's number of the open file, because
/// another file may get the inode of a deleted one.
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn wait_for_file(hdf5: &'static Hdf5, object: hid_t) -> Result<()> {
    if is_empty() {
        return Ok(());
    }
    inside(hdf5, || {
        // SAFETY: upheld by the caller.
        let session = unsafe { Session::begin(hdf5) };
        let info = FileInfo::of(&session, object)?;
        let key = key_of_object(&session, object, &info)?.file;
        let mut first: Option<Error> = None;
        for operation in in_file(hdf5, &key) {
            Arc::clone(&operation).finish();
            if let Some(file) = key.number
                && let Some(failure) = operation.unreported_failure(file)
            {
                operation.mark_reported();
                first.get_or_insert(failure);
            }
        }
        first.map_or(Ok(()), Err)
    })
}

/// Fails if this thread cannot [`make_durable`] now.
///
/// # Errors
/// [`cannot_flush`].
pub fn may_make_durable() -> Result<()> {
    may_flush().then_some(()).ok_or_else(cannot_flush)
}

/// Waits for all transfers of the file of an object as [`wait_for_file`] does, flushes the file and
/// syncs it.
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn make_durable(hdf5: &'static Hdf5, object: hid_t) -> Result<()> {
    may_make_durable()?;
    inside(hdf5, || {
        if !nothing_is_pending() {
            // SAFETY: upheld by the caller.
            unsafe { wait_for_file(hdf5, object)? };
        }
        // SAFETY: as above.
        let session = unsafe { Session::begin(hdf5) };
        // Files and groups have no description.
        if let Ok(info) = DatasetInfo::read(&session, object) {
            refuse_elsewhere(&info)?;
        }
        flush_and_sync(&session, object)
    })
}

/// Waits for all transfers of the file with this name before it is truncated or deleted: HDF5
/// allows both for a file that it has not open, although it may be in use as the source of a
/// virtual dataset.
///
/// # Safety
/// This thread may call HDF5.
pub unsafe fn wait_for_path(hdf5: &'static Hdf5, path: &Path) {
    if is_idle() {
        return;
    }
    if let Some(identity) = identity(path) {
        let file = FileKey::of_identity(Some(identity));
        inside(hdf5, || finish_before(hdf5, &AccessSet::File(file)));
    }
}
