//! HDF5's numbers of open files, which restart when the library closes (H5close). Data stored under
//! such a number is dropped then.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, MutexGuard};

use penstock_engine::Recover;
use penstock_engine::refuse_fork;
use penstock_sys::hdf5::Hdf5;

use super::conflicts;
use super::kept;
use super::kept_sources;
use super::unfinished;

/// Copies of HDF5 that call [`closes`] when they close.
static ARRANGED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn arranged() -> MutexGuard<'static, Vec<usize>> {
    ARRANGED.lock().recover()
}

/// Must be called before data is stored under a file number, on a thread that may call HDF5.
/// Returns whether the data will be dropped in time. If not, as with a copy that does not export the
/// function for it, at worst too much is refused or waited for.
pub(super) fn are_kept(hdf5: &Hdf5) -> bool {
    let copy = hdf5.copy();
    if arranged().contains(&copy) {
        return true;
    }
    let Ok(calls) = hdf5.pass_through() else {
        return false;
    };
    // SAFETY: the function lives as long as the process, because this library is never unloaded.
    let status = unsafe { (calls.H5atclose)(closes, ptr::without_provenance_mut(copy)) };
    if status >= 0 {
        arranged().push(copy);
    }
    status >= 0
}

unsafe extern "C" fn closes(copy: *mut c_void) {
    let _ = std::panic::catch_unwind(|| forget(copy.addr()));
}

/// Drops what is stored for a copy of HDF5 that closes; it initialises again when it is called
/// again.
fn forget(copy: usize) {
    // In a forked child, threads of the parent may hold the locks for ever.
    if refuse_fork().is_err() {
        return;
    }
    arranged().retain(|other| *other != copy);
    unfinished::forget(copy);
    conflicts::forget(copy);
    kept::forget(copy);
    kept_sources::forget(None);
}
