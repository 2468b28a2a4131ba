//! HDF5's numbers of open files and its identifiers, which restart when the library closes (H5close). Data
//! stored under them is dropped then.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, MutexGuard};

use penstock_engine::Recover;
use penstock_engine::refuse_fork;
use penstock_sys::hdf5::Hdf5;

/// Drops what is stored for the copy of HDF5 with a function at this address.
pub(crate) type Forget = fn(usize);

/// The copies of HDF5 that call [`closes`] when they close, each with a function to call then.
static AT_CLOSE: Mutex<Vec<(usize, Forget)>> = Mutex::new(Vec::new());

fn at_close() -> MutexGuard<'static, Vec<(usize, Forget)>> {
    AT_CLOSE.lock().recover()
}

/// Has functions called when HDF5 closes. Must be called before data is stored under a file number,
/// on a thread that may call HDF5. Returns false if HDF5 does not export the function for it: data
/// under old numbers then stays, and at worst too much is refused or waited for.
pub(crate) fn drop_at_close(hdf5: &Hdf5, forget: &[Forget]) -> bool {
    let copy = hdf5.copy();
    let is_known = at_close().iter().any(|(other, _)| *other == copy);
    if !is_known {
        let Ok(calls) = hdf5.pass_through() else {
            return false;
        };
        // SAFETY: the function lives as long as the process, because this library is never unloaded.
        let status = unsafe { (calls.H5atclose)(closes, ptr::without_provenance_mut(copy)) };
        if status < 0 {
            return false;
        }
    }
    let mut at_close = at_close();
    for new in forget {
        let is_same =
            |(other, known): &(usize, Forget)| *other == copy && ptr::fn_addr_eq(*known, *new);
        if !at_close.iter().any(is_same) {
            at_close.push((copy, *new));
        }
    }
    true
}

unsafe extern "C" fn closes(copy: *mut c_void) {
    let _ = std::panic::catch_unwind(|| forget(copy.addr()));
}

/// Drops what is stored for a copy of HDF5 that closes. HDF5 initialises again at its next call.
fn forget(copy: usize) {
    // In a forked child, threads of the parent may hold the locks for ever.
    if refuse_fork().is_err() {
        return;
    }
    let of_copy: Vec<_> = at_close()
        .extract_if(.., |(other, _)| *other == copy)
        .collect();
    for (_, forget) in of_copy {
        forget(copy);
    }
}
