//! The caller's structs, which start with their size and so may be older or newer than ours.

use std::ffi::c_void;

use penstock_engine::error::{Error, Result};

/// No struct is larger, so a larger size is memory that nobody has initialised.
const LARGEST: usize = 4096;

/// Refuses a struct whose size was not set. `name` is that of the struct in the header, after
/// `penstock_`.
///
/// # Safety
/// `target` is null or points to a struct that starts with its size.
pub(crate) unsafe fn check_size(target: *const c_void, name: &str) -> Result<()> {
    // SAFETY: the caller vouches for it.
    match unsafe { target.cast::<usize>().as_ref() } {
        Some(&size) if !(size_of::<usize>()..=LARGEST).contains(&size) => Err(Error::invalid(
            format!("struct_size of penstock_{name} is {size}"),
        )
        .remedy(format!("set it to sizeof(penstock_{name})"))),
        _ => Ok(()),
    }
}

/// Copies as much of `value` as fits into the caller's struct, whose size stays as the caller set it.
///
/// # Safety
/// `target` points to a struct of the same kind as `T`, of at least `struct_size` bytes, whose size
/// [`check_size`] has accepted.
pub(crate) unsafe fn fill<T>(target: *mut T, value: T) {
    let head = size_of::<usize>();
    // SAFETY: every such struct starts with its size.
    let size = unsafe { target.cast::<usize>().read() };
    let bytes = size.min(size_of::<T>()).saturating_sub(head);
    // SAFETY: the caller vouches for `size` bytes; `value` has at least as many.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const value).cast::<u8>().add(head),
            target.cast::<u8>().add(head),
            bytes,
        );
    }
}
