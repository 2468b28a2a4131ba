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

/// Returns the size of a struct of arguments. Fields of a newer header that this library's version,
/// `T`, lacks must be 0: it cannot do what their values ask for.
///
/// # Safety
/// `source` points to a version of the struct `T` of `struct_size` bytes.
pub(crate) unsafe fn size_of_arguments<T>(source: *const T, name: &str) -> Result<usize> {
    // SAFETY: by contract of this function; the size is checked before it is used.
    let (size, unknown) = unsafe {
        check_size(source.cast(), name)?;
        let size = source.cast::<usize>().read();
        let end = source.cast::<u8>().add(size_of::<T>().min(size));
        let unknown = size.saturating_sub(size_of::<T>());
        (size, std::slice::from_raw_parts(end, unknown))
    };
    if unknown.iter().any(|byte| *byte != 0) {
        let what =
            format!("penstock_{name} has a value in a field that this library does not know");
        return Err(
            Error::invalid(what).remedy("set the field to 0, or use a newer libpenstock.so")
        );
    }
    Ok(size)
}

/// Returns a struct of arguments; `None` for null. It must not be smaller than this library's version,
/// `T`, which is that of release 0.1.0. If `T` gets another field, programs with the smaller struct must
/// still be accepted: docs/reference/compatibility.md.
///
/// # Safety
/// `source` is null or as for [`size_of_arguments`], and valid for `'a`.
pub(crate) unsafe fn arguments<'a, T>(source: *const T, name: &str) -> Result<Option<&'a T>> {
    if source.is_null() {
        return Ok(None);
    }
    // SAFETY: by contract of this function.
    let size = unsafe { size_of_arguments(source, name)? };
    if size < size_of::<T>() {
        return Err(wrong_size(size, name));
    }
    // SAFETY: by contract of this function; the struct has all bytes of a `T`.
    Ok(unsafe { source.as_ref() })
}

/// Returns an error if the field `reserved` of a struct of arguments is set.
pub(crate) fn check_reserved(reserved: u32, name: &str) -> Result<()> {
    if reserved == 0 {
        return Ok(());
    }
    let what = format!("the field reserved of penstock_{name} is {reserved:#x}, but must be 0");
    Err(Error::invalid(what).remedy(format!("initialize the whole penstock_{name}")))
}

fn wrong_size(size: usize, name: &str) -> Error {
    Error::invalid(format!("struct_size of penstock_{name} is {size}"))
        .remedy(format!("set struct_size to sizeof(penstock_{name})"))
}

/// Copies as much of `value` as fits into the caller's struct, except for the size. Fields of a newer
/// header get 0.
///
/// # Safety
/// `target` points to a version of the struct `T` of at least `struct_size` bytes, and [`check_size`]
/// has accepted that size.
pub(crate) unsafe fn fill<T>(target: *mut T, value: T) {
    let head = size_of::<usize>();
    // SAFETY: by contract, `target` points to a struct that starts with its size.
    let size = unsafe { target.cast::<usize>().read() };
    let known = size.min(size_of::<T>());
    // SAFETY: by contract, `target` has `size` bytes, which are at least `known` and `head`; `value` has
    // `known`.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const value).cast::<u8>().add(head),
            target.cast::<u8>().add(head),
            known - head,
        );
        target.cast::<u8>().add(known).write_bytes(0, size - known);
    }
}
