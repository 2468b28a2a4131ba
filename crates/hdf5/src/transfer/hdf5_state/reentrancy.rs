//! The calls of HDF5 in progress on this thread as part of a transfer.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use penstock_engine::error::Error;
use penstock_engine::request::inside_callback;
use penstock_sys::hdf5::{Hdf5, herr_t, hid_t};

use crate::library::Session;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Returns the error of an operation that needs a flush while [`may_flush`](crate::library::may_flush) returns false.
pub fn cannot_flush() -> Error {
    inside_callback("a durable write, which ends with a flush of the file,")
}

/// Returns whether this thread calls HDF5 as part of a transfer. Penstock's connector then forwards
/// the calls that it receives, because the program did not make them.
pub fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// While this value lives, [`is_inside`] returns true.
struct Inside;

impl Inside {
    fn begin() -> Inside {
        DEPTH.set(DEPTH.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Runs `body` inside a call of HDF5. That provides the context that dependent operations of a
/// connector need, and holds the lock of a thread-safe HDF5, so that no other thread calls HDF5 between
/// the calls that `body` makes. An HDF5 that is not thread-safe has no lock: the caller must
/// exclude other threads.
///
/// Only some builds export the lock, but every build holds it during a callback,
/// for instance for each property of a list.
pub fn inside<T>(hdf5: &Hdf5, body: impl FnOnce() -> T) -> T {
    unsafe extern "C" fn run(_: hid_t, _: *const c_char, act: *mut c_void) -> herr_t {
        // SAFETY: `inside` passes its own closure, which nothing else uses meanwhile.
        (unsafe { &mut *act.cast::<&mut dyn FnMut()>() })();
        // Ends the iteration after one property.
        1
    }
    let _inside = Inside::begin();
    // While it closes, HDF5 makes no callbacks and would print an error.
    // SAFETY: the caller may call HDF5.
    let _quiet = unsafe { Session::begin(hdf5) };
    let Some(list) = hdf5.identifier("H5P_LST_DATASET_XFER_ID_g") else {
        return body();
    };
    let (mut body, mut answer) = (Some(body), None);
    let mut act = || {
        if let Some(body) = body.take() {
            // A panic must not unwind through HDF5; it is resumed after the call.
            answer = Some(catch_unwind(AssertUnwindSafe(body)));
        }
    };
    let mut act: &mut dyn FnMut() = &mut act;
    let data = ptr::from_mut(&mut act).cast();
    // SAFETY: the list is HDF5's own and has properties; the closure outlives the call.
    unsafe { (hdf5.H5Piterate)(list, ptr::null_mut(), run, data) };
    match (answer, body) {
        (Some(Ok(answer)), _) => answer,
        (Some(Err(panic)), _) => resume_unwind(panic),
        // HDF5 is closing: it makes no more callbacks, and admits no other threads.
        (None, Some(body)) => body(),
        (None, None) => unreachable!("the answer is set where the body is taken"),
    }
}
