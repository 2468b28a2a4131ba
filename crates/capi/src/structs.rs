//! Structs of the caller, which start with their size: their version may be older or newer than
//! this library. `name` is the name of a struct in the header without `penstock_`.

use std::ffi::c_void;

use penstock_engine::error::{Error, Result};

/// Upper bound of the size of all structs. A larger struct_size is uninitialised memory.
const LARGEST: usize = 4096;

/// Returns an error if the size of a struct was not set.
///
/// # Safety
/// `target` is null or points to a struct that starts with its size.
pub(crate) unsafe fn check_size(target: *const c_void, name: &str) -> Result<()> {
    // SAFETY: by contract of this function.
    match unsafe { target.cast::<usize>().as_ref() } {
        Some(&size) if !(size_of::<usize>()..=LARGEST).contains(&size) => {
            Err(wrong_size(size, name))
        }
        _ => Ok(()),
    }
}

/// Returns an error if a struct is smaller than this library's version, `T`, which is that of release
/// 0.1.0. If `T` gets another field, programs with the smaller struct must still be accepted:
/// docs/reference/compatibility.md.
pub(crate) fn check_complete<T>(size: usize, name: &str) -> Result<()> {
    if size < size_of::<T>() {
        Err(wrong_size(size, name))
    } else {
        Ok(())
    }
}

fn wrong_size(size: usize, name: &str) -> Error {
    Error::invalid(format!("struct_size of penstock_{name} is {size}"))
        .remedy(format!("set struct_size to sizeof(penstock_{name})"))
}

/// Copies as much of `value` as fits into the caller's struct, except for the size.
///
/// # Safety
/// `target` points to a version of the struct `T` of at least `struct_size` bytes, and [`check_size`]
/// has accepted that size.
pub(crate) unsafe fn fill<T>(target: *mut T, value: T) {
    let head = size_of::<usize>();
    // SAFETY: by contract, `target` points to a struct that starts with its size.
    let size = unsafe { target.cast::<usize>().read() };
    let bytes = size.min(size_of::<T>()).saturating_sub(head);
    // SAFETY: by contract, `target` has `size` bytes, which are at least `head + bytes`; so has `value`.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const value).cast::<u8>().add(head),
            target.cast::<u8>().add(head),
            bytes,
        );
    }
}
