//! Open files.

use std::ffi::{c_char, c_int};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::{Access, File};
use penstock_engine::refuse_fork;

use crate::arguments::{path_of, place_of};
use crate::error::guard;
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

/// Returns the file of a handle, for the duration of a call.
pub(crate) fn file_of(file: *mut CFile) -> Result<InUse<Arc<File>>> {
    FILES.get(file).map(InUse::new)
}

fn access_of(flags: c_int) -> Access {
    Access {
        read: flags & READ != 0,
        write: flags & WRITE != 0,
        create: flags & CREATE != 0,
        truncate: flags & TRUNCATE != 0,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_open(
    path: *const c_char,
    flags: c_int,
    options: *const COptions,
    file: *mut *mut CFile,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        let place = place_of(file, "file")?;
        if flags & !(READ | WRITE | CREATE | TRUNCATE) != 0 {
            return Err(Error::invalid(format!("unknown open flags in {flags:#x}")));
        }
        let (path, options) = (path_of(path, "path")?, options::read(options)?);
        let opened = File::open(path, access_of(flags), options)?;
        *place = FILES.insert(Arc::new(opened));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_open_descriptor(
    descriptor: c_int,
    flags: c_int,
    options: *const COptions,
    file: *mut *mut CFile,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        refuse_fork()?;
        let place = place_of(file, "file")?;
        if flags & !(READ | WRITE) != 0 {
            return Err(Error::invalid(format!(
                "unknown flags in {flags:#x} for a descriptor"
            )));
        }
        let options = options::read(options)?;
        let opened = File::of_borrowed_descriptor(descriptor, access_of(flags), options)?;
        *place = FILES.insert(Arc::new(opened));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_close(file: *mut CFile) -> c_int {
    guard(|| {
        if file.is_null() || refuse_fork().is_err() {
            return Ok(());
        }
        let file = FILES.take(file)?;
        in_use::wait_for_others(&file);
        file.wait_until_unused();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_file_release(place: *mut *mut CFile) {
    // SAFETY: by contract of this function.
    unsafe { release(place, |file| penstock_close(file)) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_file_size(file: *mut CFile, bytes: *mut u64) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        *place_of(bytes, "bytes")? = file_of(file)?.size()?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_file_identity(
    file: *mut CFile,
    inode: *mut u64,
    bytes: *mut u64,
    modified_ns: *mut i64,
) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| unsafe {
        let about = file_of(file)?.metadata()?;
        let modified = about.mtime().saturating_mul(1_000_000_000);
        *place_of(inode, "inode")? = about.ino();
        *place_of(bytes, "bytes")? = about.len();
        *place_of(modified_ns, "modified_ns")? = modified.saturating_add(about.mtime_nsec());
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn penstock_truncate(file: *mut CFile, bytes: u64) -> c_int {
    guard(|| file_of(file)?.truncate(bytes))
}

#[unsafe(no_mangle)]
extern "C" fn penstock_sync(file: *mut CFile) -> c_int {
    guard(|| file_of(file)?.sync())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn penstock_set_options(file: *mut CFile, options: *const COptions) -> c_int {
    // SAFETY: by contract of this function.
    guard(|| file_of(file)?.set_options(unsafe { options::read(options)? }))
}
