//! The entry points of the driver, and those of the stand-in itself in [`control`].
//!
//! Each function has the contract of the driver function of the same name; NVIDIA documents it and
//! its safety conditions.
#![allow(clippy::missing_safety_doc)]

use std::ffi::c_void;

use crate::status::{INVALID_VALUE, Result};

pub mod context;
pub mod control;
pub mod copy;
pub mod device;
pub mod event;
pub mod legacy;
pub mod memory;
pub mod module;
pub mod pointer;
pub mod stream;

/// Stores an output of a call.
///
/// # Safety
/// `place` is null or valid for a `T`.
pub(crate) unsafe fn store<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: by contract of this function.
    unsafe { place.write(value) };
    Ok(())
}

/// Stores a NUL-terminated string into `length` bytes, truncated if it does not fit.
///
/// # Safety
/// `place` is null or valid for `length` bytes.
unsafe fn store_text(place: *mut std::ffi::c_char, length: i32, text: &[u8]) -> Result {
    let room = usize::try_from(length).map_err(|_| INVALID_VALUE)?;
    if place.is_null() || room == 0 {
        return Err(INVALID_VALUE);
    }
    let kept = text.len().min(room - 1);
    // SAFETY: by contract of this function there is room for `kept` bytes and the NUL.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, kept);
        place.add(kept).write(0);
    }
    Ok(())
}

/// A client's pointer that is used on a thread of the driver.
struct Sent(*mut c_void);

// SAFETY: the driver's contract allows the pointer's use on a thread of the driver.
unsafe impl Send for Sent {}

impl Sent {
    fn get(&self) -> *mut c_void {
        self.0
    }
}
