//! Open files.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::{Access, File};
use penstock_engine::refuse_fork;

use crate::error::{OK, guard, null};
use crate::options::{self, COptions};

const READ: c_int = 1;
const WRITE: c_int = 2;
const CREATE: c_int = 4;
const TRUNCATE: c_int = 8;

/// What a `penstock_file *` points to. Jobs under way hold the file, too.
pub struct CFile(pub Arc<File>);

/// # Safety
/// `path` is null or a C string that lives as long as the answer is used.
pub unsafe fn path_of<'a>(path: *const c_char) -> Result<&'a Path> {
    if path.is_null() {
        return Err(null("path"));
    }
    // SAFETY: the caller gives a C string.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// # Safety
/// `file` is null or an open handle.
pub unsafe fn file_of<'a>(file: *mut CFile) -> Result<&'a Arc<File>> {
    refuse_fork()?;
    // SAFETY: the caller gives an open handle or null.
    unsafe { file.as_ref() }
        .map(|f| &f.0)
        .ok_or_else(|| null("file"))
}

/// # Safety
/// `path` is a C string; `options` is null or points to options; `file` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_open(
    path: *const c_char,
    flags: c_int,
    options: *const COptions,
    file: *mut *mut CFile,
) -> c_int {
    guard(|| {
        refuse_fork()?;
        if file.is_null() {
            return Err(null("file"));
        }
        if flags & !(READ | WRITE | CREATE | TRUNCATE) != 0 {
            return Err(Error::invalid(format!("unknown open flags in {flags:#x}")));
        }
        let access = Access {
            read: flags & READ != 0,
            write: flags & WRITE != 0,
            create: flags & CREATE != 0,
            truncate: flags & TRUNCATE != 0,
        };
        // SAFETY: the caller vouches for both pointers.
        let (path, options) = unsafe { (path_of(path)?, options::read(options)?) };
        let opened = File::open(path, access, options)?;
        // SAFETY: the caller vouches for the place.
        unsafe { *file = Box::into_raw(Box::new(CFile(Arc::new(opened)))) };
        Ok(OK)
    })
}

/// # Safety
/// `file` is null or an open handle, which is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_close(file: *mut CFile) -> c_int {
    guard(|| {
        if file.is_null() {
            return Ok(OK);
        }
        // SAFETY: the caller gives the handle up.
        let file = unsafe { Box::from_raw(file) };
        if refuse_fork().is_err() {
            return Ok(OK);
        }
        file.0.wait_until_unused();
        Ok(OK)
    })
}

/// # Safety
/// `file` is an open handle; `bytes` is a place for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_file_size(file: *mut CFile, bytes: *mut u64) -> c_int {
    guard(|| {
        // SAFETY: the caller vouches for the handle.
        let size = unsafe { file_of(file)? }.size()?;
        // SAFETY: the caller vouches for a pointer that is not null.
        *unsafe { bytes.as_mut() }.ok_or_else(|| null("bytes"))? = size;
        Ok(OK)
    })
}

/// # Safety
/// `file` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_truncate(file: *mut CFile, bytes: u64) -> c_int {
    guard(|| {
        // SAFETY: the caller vouches for the handle.
        unsafe { file_of(file)? }.truncate(bytes)?;
        Ok(OK)
    })
}

/// # Safety
/// `file` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_sync(file: *mut CFile) -> c_int {
    guard(|| {
        // SAFETY: the caller vouches for the handle.
        unsafe { file_of(file)? }.sync()?;
        Ok(OK)
    })
}

/// # Safety
/// `file` is an open handle; `options` is null or points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_set_options(file: *mut CFile, options: *const COptions) -> c_int {
    guard(|| {
        // SAFETY: the caller vouches for both.
        unsafe { file_of(file)?.set_options(options::read(options)?)? };
        Ok(OK)
    })
}
