//! A mapping of whole pages, which can be pinned for CUDA.

use std::ffi::c_void;
use std::io;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use penstock_sys::cuda::{self, CUresult};

use super::OwnContext;
use crate::error::Result;

/// Pages of anonymous memory or of a file. Dropping pinned pages unpins them. The owner must have
/// waited for all copies of them.
pub(crate) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
    /// The context that pinned them.
    pinned: Option<Arc<OwnContext>>,
    /// Whether the pages count as a mapping of a file.
    of_file: bool,
}

/// The number of mappings of files that exist now. A process may have 65,530 mappings by default,
/// most of which are left to the rest of the process.
static OF_FILES: AtomicUsize = AtomicUsize::new(0);
const MOST_OF_FILES: usize = 8192;

// SAFETY: a mapping and its registration belong to no thread.
unsafe impl Send for Pages {}

impl Pages {
    /// New memory, filled with zeros.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Pages> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Pages::map(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    }

    /// Maps pages of a file from `offset`, a multiple of the page size, for reading. The CPU must
    /// not read them: if the file was truncated, that would raise SIGBUS. Fails with ENOMEM if the
    /// process or Penstock has reached its limit of mappings.
    pub(crate) fn of_file(fd: RawFd, offset: u64, bytes: usize) -> io::Result<Pages> {
        let one_more = |count| (count < MOST_OF_FILES).then_some(count + 1);
        if OF_FILES.fetch_update(Relaxed, Relaxed, one_more).is_err() {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        match Pages::map(bytes, libc::PROT_READ, libc::MAP_SHARED, fd, offset) {
            Ok(mut pages) => {
                pages.of_file = true;
                Ok(pages)
            }
            Err(error) => {
                OF_FILES.fetch_sub(1, Relaxed);
                Err(error)
            }
        }
    }

    fn map(bytes: usize, access: i32, flags: i32, fd: RawFd, offset: u64) -> io::Result<Pages> {
        let offset = offset as libc::off_t;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Pages {
            start,
            bytes,
            pinned: None,
            of_file: false,
        })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn address(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }

    /// madvise(2) on all of the pages.
    pub(crate) fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the range is this mapping; none of the advices used changes its contents.
        match unsafe { libc::madvise(self.address(), self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Pins the pages for copies of a context. Returns the driver's result.
    pub(crate) fn pin(&mut self, context: &Arc<OwnContext>, flags: u32) -> Result<CUresult> {
        let _entered = context.enter()?;
        // SAFETY: the range is this mapping, which stays until it was unpinned.
        let code =
            unsafe { (context.driver.cuda.cuMemHostRegister)(self.address(), self.bytes, flags) };
        if code == cuda::CUDA_SUCCESS {
            self.pinned = Some(Arc::clone(context));
        }
        Ok(code)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(context) = self.pinned.take()
            && let Ok(_entered) = context.enter()
        {
            // SAFETY: registered in `pin`; the owner has ended all copies.
            unsafe { (context.driver.cuda.cuMemHostUnregister)(self.address()) };
        }
        // SAFETY: the mapping made in `map`, into which no pointer exists.
        unsafe { libc::munmap(self.address(), self.bytes) };
        if self.of_file {
            OF_FILES.fetch_sub(1, Relaxed);
        }
    }
}
