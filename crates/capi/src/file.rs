//! Open files.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::{Access, File};
use penstock_engine::refuse_fork;

use crate::error::{OK, guard, null};
use crate::handle::{Table, release};
use crate::in_use::{self, InUse};
use crate::options::{self, COptions};

const READ: c_int = 1;
const WRITE: c_int = 2;
const CREATE: c_int = 4;
const TRUNCATE: c_int = 8;

/// The type to which a `penstock_file *` points; see [`crate::handle`].
pub(crate) enum CFile {}

/// Calls hold the outer `Arc` of a file; jobs in flight hold the inner one.
static FILES: Table<Arc<File>> = Table::new("file");

/// # Safety
/// `path` is null or a C string that lives for `'a`.
pub(crate) unsafe fn path_of<'a>(path: *const c_char) -> Result<&'a Path> {
    if path.is_null() {
        return Err(null("path"));
    }
    // SAFETY: the caller gives a C string.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Returns the file of a handle, for the duration of a call.
pub(crate) fn file_of(file: *mut CFile) -> Result<InUse<Arc<File>>> {
    FILES.get(file).map(InUse::new)
}

/// # Safety
/// `path` is null or a C string; `options` is null or points to options; `file` is null or valid for a
/// pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_open(
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
        // SAFETY: by contract of this function.
        let (path, options) = unsafe { (path_of(path)?, options::read(options)?) };
        let opened = File::open(path, access, options)?;
        // SAFETY: by contract, the pointer is valid.
        unsafe { *file = FILES.insert(Arc::new(Arc::new(opened))) };
        Ok(OK)
    })
}

/// # Safety
/// `options` is null or points to options; `file` is null or valid for a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_open_descriptor(
    descriptor: c_int,
    flags: c_int,
    options: *const COptions,
    file: *mut *mut CFile,
) -> c_int {
    guard(|| {
        refuse_fork()?;
        if file.is_null() {
            return Err(null("file"));
        }
        if flags & !(READ | WRITE) != 0 {
            return Err(Error::invalid(format!(
                "unknown flags in {flags:#x} for a descriptor"
            )));
        }
        let access = Access {
            read: flags & READ != 0,
            write: flags & WRITE != 0,
            ..Access::default()
        };
        // SAFETY: by contract of this function.
        let options = unsafe { options::read(options)? };
        let opened = File::of_borrowed_descriptor(descriptor, access, options)?;
        // SAFETY: by contract, the pointer is valid.
        unsafe { *file = FILES.insert(Arc::new(Arc::new(opened))) };
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_close(file: *mut CFile) -> c_int {
    guard(|| {
        if file.is_null() || refuse_fork().is_err() {
            return Ok(OK);
        }
        let file = FILES.take(file)?;
        in_use::wait_for_others(&file);
        file.wait_until_unused();
        Ok(OK)
    })
}

/// # Safety
/// `place` is null, or points to a handle or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_file_release(place: *mut *mut CFile) {
    // SAFETY: by contract of this function.
    unsafe { release(place, |file| penstock_close(file)) };
}

/// # Safety
/// `bytes` is null or valid for the result.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_file_size(file: *mut CFile, bytes: *mut u64) -> c_int {
    guard(|| {
        let size = file_of(file)?.size()?;
        // SAFETY: by contract, the pointer is null or valid.
        *unsafe { bytes.as_mut() }.ok_or_else(|| null("bytes"))? = size;
        Ok(OK)
    })
}

/// # Safety
/// Each pointer is null or valid for the result.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_file_identity(
    file: *mut CFile,
    inode: *mut u64,
    bytes: *mut u64,
    modified_ns: *mut i64,
) -> c_int {
    guard(|| {
        let about = file_of(file)?.metadata()?;
        let modified = about.mtime().saturating_mul(1_000_000_000);
        // SAFETY: by contract, the pointers are null or valid.
        unsafe {
            *inode.as_mut().ok_or_else(|| null("inode"))? = about.ino();
            *bytes.as_mut().ok_or_else(|| null("bytes"))? = about.len();
            *modified_ns.as_mut().ok_or_else(|| null("modified_ns"))? =
                modified.saturating_add(about.mtime_nsec());
        }
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_truncate(file: *mut CFile, bytes: u64) -> c_int {
    guard(|| {
        file_of(file)?.truncate(bytes)?;
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_sync(file: *mut CFile) -> c_int {
    guard(|| {
        file_of(file)?.sync()?;
        Ok(OK)
    })
}

/// # Safety
/// `options` is null or points to options.
#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_set_options(file: *mut CFile, options: *const COptions) -> c_int {
    guard(|| {
        // SAFETY: by contract of this function.
        file_of(file)?.set_options(unsafe { options::read(options)? })?;
        Ok(OK)
    })
}
