//! Being inside a call of HDF5.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::ptr;

use penstock_sys::hdf5::{Hdf5, PropertyIterate, herr_t, hid_t};

use crate::library::Session;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread calls HDF5 in the course of a transfer: a connector of ours, which HDF5 asks then,
/// passes everything on, since it is no call of the program's.
pub fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// While it lives, [`is_inside`] is true.
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

/// Calls `body` inside a call of HDF5: with the context that operations of a connector need which come
/// after others, and with the lock of an HDF5 that is thread-safe, so that no other thread comes between
/// the calls that `body` makes. Another HDF5 has no lock: the caller keeps its threads apart.
///
/// HDF5 exports its lock in some builds only. Every build holds it while it calls functions of the
/// program, such as for each property of a list.
pub fn inside<T>(hdf5: &Hdf5, body: impl FnOnce() -> T) -> T {
    struct Run<F, T> {
        body: Option<F>,
        answer: Option<std::thread::Result<T>>,
    }
    unsafe extern "C" fn run<F: FnOnce() -> T, T>(
        _: hid_t,
        _: *const c_char,
        data: *mut c_void,
    ) -> herr_t {
        // SAFETY: `inside` passes its own, which nobody else uses meanwhile.
        let run = unsafe { &mut *data.cast::<Run<F, T>>() };
        if let Some(body) = run.body.take() {
            // No panic may cross HDF5; it goes on behind.
            let body = std::panic::AssertUnwindSafe(body);
            run.answer = Some(std::panic::catch_unwind(body));
        }
        // Ends the iteration.
        1
    }
    let _inside = Inside::begin();
    // HDF5 would print that it calls nothing any more, where it is closing.
    // SAFETY: the caller may call HDF5.
    let _quiet = unsafe { Session::begin(hdf5) };
    let Some(list) = hdf5.identifier("H5P_LST_DATASET_XFER_ID_g") else {
        return body();
    };
    let mut run_once = Run {
        body: Some(body),
        answer: None,
    };
    fn callback<F: FnOnce() -> T, T>(_: &Run<F, T>) -> PropertyIterate {
        run::<F, T>
    }
    let call = callback(&run_once);
    // SAFETY: the list is HDF5's own, and has properties; the data outlive the call.
    unsafe {
        (hdf5.H5Piterate)(
            list,
            ptr::null_mut(),
            call,
            ptr::from_mut(&mut run_once).cast(),
        )
    };
    match (run_once.answer, run_once.body) {
        (Some(Ok(answer)), _) => answer,
        (Some(Err(panic)), _) => std::panic::resume_unwind(panic),
        // HDF5 is closing, and calls nothing any more: nor does it let other threads in.
        (None, Some(body)) => body(),
        (None, None) => unreachable!("the answer is kept where the body is taken"),
    }
}
