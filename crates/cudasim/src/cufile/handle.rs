//! Registered files.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::{Arc, Mutex};

use penstock_sys::cufile::*;

use super::{Failure, Result, session, statistics};
use crate::failure;
use crate::handle::Table;

pub struct Registered {
    /// The client's descriptor, which it must keep open.
    descriptor: i32,
    /// Device and inode of its file.
    identity: (u64, u64),
    /// The same file, opened without `O_DIRECT`.
    pub file: File,
    /// Whether the client opened it with `O_DIRECT`, which a direct path requires.
    pub direct: bool,
}

static HANDLES: Table<Registered> = Table::new();

pub fn register(descriptor: i32) -> Result<*mut c_void> {
    let registered = try_register(descriptor);
    statistics::count(|basic| &mut basic.hdl_register_ops, registered.is_ok());
    registered
}

fn try_register(descriptor: i32) -> Result<*mut c_void> {
    session::ensure_open()?;
    if let Some(code) = failure::code(failure::Kind::CufileHandle) {
        return Err(Failure::injected(code));
    }
    let flags = status_flags(descriptor).ok_or(Failure::Operation(CU_FILE_INVALID_VALUE))?;
    // O_TMPFILE includes O_DIRECTORY.
    if flags & libc::O_TMPFILE != 0 {
        return Err(Failure::Operation(CU_FILE_INVALID_FILE_OPEN_FLAG));
    }
    let access = flags & libc::O_ACCMODE;
    let file = OpenOptions::new()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .open(format!("/proc/self/fd/{descriptor}"))
        .map_err(|_| Failure::Operation(CU_FILE_GETNEWFD_FAILED))?;
    let metadata = file
        .metadata()
        .map_err(|_| Failure::Operation(CU_FILE_INVALID_FILE_TYPE))?;
    if !metadata.is_file() && !metadata.file_type().is_block_device() {
        return Err(Failure::Operation(CU_FILE_INVALID_FILE_TYPE));
    }
    let identity = (metadata.dev(), metadata.ino());
    let direct = flags & libc::O_DIRECT != 0;
    static REGISTERING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = REGISTERING.lock().unwrap();
    if HANDLES.any(|other| other.descriptor == descriptor && other.is_open()) {
        return Err(Failure::Operation(CU_FILE_HANDLE_ALREADY_REGISTERED));
    }
    Ok(HANDLES.add(Arc::new(Registered {
        descriptor,
        identity,
        file,
        direct,
    })))
}

fn status_flags(descriptor: i32) -> Option<i32> {
    // SAFETY: only queries; the call fails for a number that is not a descriptor.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    (flags >= 0).then_some(flags)
}

pub fn deregister(handle: *mut c_void) {
    let removed = HANDLES.remove(handle);
    statistics::count(|basic| &mut basic.hdl_deregister_ops, removed.is_some());
}

pub fn remove_all() {
    HANDLES.retain(|_| false);
}

pub fn find(handle: *mut c_void) -> Result<Arc<Registered>> {
    HANDLES
        .find(handle)
        .ok_or(Failure::Operation(CU_FILE_HANDLE_NOT_REGISTERED))
}

/// The number of registered handles.
pub fn count() -> usize {
    HANDLES.len()
}

impl Registered {
    /// Returns false if the client has closed its descriptor or reused the number for another file.
    pub fn is_open(&self) -> bool {
        let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the pointer is valid for the call; `status` is read only if the call initialised it.
        let status = unsafe {
            if libc::fstat(self.descriptor, status.as_mut_ptr()) != 0 {
                return false;
            }
            status.assume_init()
        };
        (status.st_dev, status.st_ino) == self.identity
    }
}
