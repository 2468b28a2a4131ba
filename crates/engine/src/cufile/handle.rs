//! cuFile's handles of a file: one for the buffered descriptor and one for O_DIRECT.

use std::os::fd::RawFd;
use std::ptr;
use std::sync::OnceLock;

use penstock_sys::cufile::{CUfileDescr, CUfileHandle, CuFile};

use super::driver::{self, Driver};
use crate::error::{Error, Result};

/// The handles of one file. Each is registered when a request first needs it. A refusal is kept as
/// well, since cuFile would refuse the file again.
#[derive(Default)]
pub(crate) struct Handles {
    buffered: OnceLock<Result<Registered>>,
    direct: OnceLock<Result<Registered>>,
}

impl Handles {
    /// The handle of the file's descriptor: the one for O_DIRECT if `direct`, else the buffered
    /// one. `None` if the file has no such descriptor.
    pub(crate) fn get(
        &self,
        driver: &Driver,
        direct: bool,
        descriptor: RawFd,
    ) -> Result<CUfileHandle> {
        let cell = if direct { &self.direct } else { &self.buffered };
        cell.get_or_init(|| Registered::new(driver.cufile, descriptor))
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
                "cuFile rejects the file: cuFileHandleRegister",
                registered,
            ));
        }
        Ok(Registered { handle, cufile })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // In a forked child, cuFile's locks may be held for ever.
        if crate::fork::refuse_fork().is_ok() {
            // SAFETY: registered in `new`, and no call uses it: requests hold the file.
            unsafe { (self.cufile.cuFileHandleDeregister)(self.handle) };
        }
    }
}
