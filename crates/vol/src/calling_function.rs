//! The function of HDF5 that the application has called.

use std::ffi::c_int;
use std::ptr;

use penstock_sys::function_at;

/// Number of stack frames that are searched. HDF5 has about twelve between the application's call
/// and a callback, and each connector above this one as many again.
const MOST_FRAMES: usize = 128;

/// Returns whether the application closes a dataset by `H5Dclose`, which removes the identifier even
/// if the close fails. `H5Idec_ref` (h5py) and `H5Oclose` keep the identifier of an object that HDF5
/// has freed. HDF5 makes the same calls of a connector for all of them, so this function looks for
/// `H5Dclose` among the callers. Returns false where the stack cannot be unwound.
///
/// The thread is inside a callback that closes a dataset.
pub(crate) fn is_h5dclose() -> bool {
    let mut frames = [ptr::null_mut(); MOST_FRAMES];
    // SAFETY: the array has the given length.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), MOST_FRAMES as c_int) };
    let callers = frames.iter().take(usize::try_from(count).unwrap_or(0));
    let mut callers = callers.filter_map(|address| function_at(*address));
    // The innermost call decides: the connector itself releases objects by H5Idec_ref.
    let closing = callers
        .find(|name| [c"H5Dclose", c"H5Dclose_async", c"H5Idec_ref", c"H5Oclose"].contains(name));
    closing.is_some_and(|name| name.to_bytes().starts_with(b"H5Dclose"))
}
