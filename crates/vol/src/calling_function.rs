//! The function of HDF5 that the application has called, and its copy of HDF5.

use std::ffi::{c_int, c_void};
use std::ptr;

use penstock_sys::function_at;

use super::calling_library::CallingLibrary;
use penstock_hdf5::library::copies::{hdf5_of, known_slot_of};

/// Number of stack frames that are searched. HDF5 has about twelve between the application's call
/// and a callback, and each connector above this one as many again.
const MOST_FRAMES: usize = 128;

/// Returns the addresses of the innermost callers, and their number.
fn callers<const MOST: usize>() -> ([*mut c_void; MOST], usize) {
    let mut frames = [ptr::null_mut(); MOST];
    // SAFETY: the array has the given length.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), MOST as c_int) };
    (frames, usize::try_from(count).unwrap_or(0))
}

/// Returns the copy of HDF5 that has called the connector, for objects that do not say it.
pub(crate) fn calling_library() -> Option<CallingLibrary> {
    /// Number of stack frames that are searched. The connector itself has a few.
    const MOST: usize = 16;
    if hdf5_of(1).is_none() {
        return CallingLibrary::of(0);
    }
    let (frames, count) = callers::<MOST>();
    let slot = frames[..count].iter().find_map(|at| known_slot_of(*at));
    CallingLibrary::of(slot?)
}

/// Returns whether the application closes a dataset by `H5Dclose`, which removes the identifier even
/// if the close fails. `H5Idec_ref` (h5py) and `H5Oclose` keep the identifier of an object that HDF5
/// has freed. HDF5 makes the same calls of a connector for all of them, so this function looks for
/// `H5Dclose` among the callers. Returns false where the stack cannot be unwound.
///
/// The thread is inside a callback that closes a dataset.
pub(crate) fn is_h5dclose() -> bool {
    let (frames, count) = callers::<MOST_FRAMES>();
    let mut callers = frames[..count].iter().filter_map(|at| function_at(*at));
    // The innermost call decides: the connector itself releases objects by H5Idec_ref.
    let closing = callers
        .find(|name| [c"H5Dclose", c"H5Dclose_async", c"H5Idec_ref", c"H5Oclose"].contains(name));
    closing.is_some_and(|name| name.to_bytes().starts_with(b"H5Dclose"))
}
