//! HDF5's numbers of open files, which begin anew when the library has closed (H5close): what is kept by
//! them is forgotten then.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, MutexGuard};

use penstock_sys::hdf5::Hdf5;

use super::conflicts;
use super::unfinished;

/// Copies of HDF5 that call [`closes`] when they close.
static ARRANGED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn arranged() -> MutexGuard<'static, Vec<usize>> {
    ARRANGED.lock().unwrap_or_else(|e| e.into_inner())
}

/// Something is about to be kept by a number. The thread may call HDF5.
pub(super) fn are_kept(hdf5: &Hdf5) {
    let copy = hdf5.copy();
    if arranged().contains(&copy) {
        return;
    }
    // A copy that exports no such function keeps what it has: at worst too much is refused, and waited for.
    if let Ok(calls) = hdf5.pass_through() {
        // SAFETY: the function lives as long as the process, as this library is never closed.
        let status = unsafe { (calls.H5atclose)(closes, ptr::without_provenance_mut(copy)) };
        if status >= 0 {
            arranged().push(copy);
        }
    }
}

unsafe extern "C" fn closes(copy: *mut c_void) {
    let _ = std::panic::catch_unwind(|| forget(copy.addr()));
}

/// The copy of HDF5 is closing, and begins anew when it is called again.
fn forget(copy: usize) {
    arranged().retain(|other| *other != copy);
    unfinished::forget(copy);
    conflicts::forget(copy);
}
