//! cuFile's handles of a file: one through the page cache and one past it.

use std::fmt;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::OnceLock;

use penstock_sys::cufile::{CUfileDescr, CUfileHandle, CuFile};

use super::driver::{self, Driver};
use crate::error::{Error, Kind, Result};
use crate::file::File;

/// The handles of one file, registered when a request first needs them. A refusal is kept, too:
/// cuFile would give the same answer again.
#[derive(Debug, Default)]
pub(crate) struct HandleCell {
    buffered: OnceLock<Result<Registered>>,
    direct: OnceLock<Result<Registered>>,
}

impl HandleCell {
    /// The handle of `file`, which this cell is part of; the one for O_DIRECT if `direct`.
    pub fn get(&self, driver: &Driver, file: &File, direct: bool) -> Result<CUfileHandle> {
        let (cell, fd) = if direct {
            (&self.direct, file.direct_fd())
        } else {
            (&self.buffered, Some(file.buffered_fd()))
        };
        cell.get_or_init(|| {
            let fd = fd.ok_or_else(|| {
                Error::new(Kind::Unavailable, "the file system has no direct I/O here")
            })?;
            Registered::new(driver.cufile, fd).map_err(|e| e.in_file(file.path()))
        })
        .as_ref()
        .map(|registered| registered.handle)
        .map_err(Error::clone)
    }
}

struct Registered {
    handle: CUfileHandle,
    cufile: &'static CuFile,
}

// SAFETY: cuFile takes a handle from any thread, from several at a time.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    fn new(cufile: &'static CuFile, fd: RawFd) -> Result<Registered> {
        let mut handle = ptr::null_mut();
        let mut descriptor = CUfileDescr::for_fd(fd);
        // SAFETY: both are valid for the call; the descriptor stays open until the file is
        // dropped, which drops this first.
        let registered = unsafe { (cufile.cuFileHandleRegister)(&mut handle, &mut descriptor) };
        if !registered.is_success() {
            return Err(driver::refused(
                "cuFile does not take the file: cuFileHandleRegister",
                registered,
            ));
        }
        Ok(Registered { handle, cufile })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // In a forked child cuFile's locks may be held for ever.
        if crate::refuse_fork().is_ok() {
            // SAFETY: registered in `new`, and no call uses it: requests hold the file.
            unsafe { (self.cufile.cuFileHandleDeregister)(self.handle) };
        }
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registered").field(&self.handle).finish()
    }
}
