//! Pages of a file, mapped read-only, present, and pinned for the GPU.

use std::ptr;
use std::sync::Arc;

use penstock_sys::cuda;

use crate::error::{Error, Result};
use crate::file::page_size;
use crate::file::position::{Call, Operation};
use crate::gpu::Context;
use crate::plan::Span;
use crate::routes::Work;

/// Dropping it unpins and unmaps the pages: see [`super::release`] for when that may happen.
pub(super) struct Map {
    start: *mut u8,
    pub bytes: usize,
    /// File offset of `start`.
    offset: u64,
    pinned_in: Option<Arc<Context>>,
}

// SAFETY: a mapping and its registration belong to no thread.
unsafe impl Send for Map {}

impl Map {
    pub fn new(work: &Work<'_>, span: &Span, context: &Arc<Context>) -> Result<Option<Map>> {
        let page = page_size();
        let offset = span.offset / page * page;
        let bytes = (span.end() - offset) as usize;
        let call = Call {
            operation: Operation::Read,
            offset: span.offset,
            length: span.length,
        };
        if let Some(Err(e)) = work.gate.map(|gate| gate.before(call)) {
            return Err(work.failed(&e, span.offset, span.length));
        }
        work.counters.io_call();
        // SAFETY: a fresh read-only mapping at an address of the kernel's choice. The CPU never
        // reads through it, so a truncated file cannot raise SIGBUS here.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                work.file.buffered_fd(),
                offset as libc::off_t,
            )
        };
        if start == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENODEV | libc::EACCES) => Ok(None),
                _ => Err(Error::os(&error, "cannot map the file").at(
                    work.file.path(),
                    span.offset,
                    span.length,
                )),
            };
        }
        let mut map = Map {
            start: start.cast(),
            bytes,
            offset,
            pinned_in: None,
        };
        map.populate(work, span)?;
        Ok(map.pin(context)?.then_some(map))
    }

    /// Brings the pages in, reading those that are not cached. An error shows here, in a system
    /// call, rather than as a signal.
    fn populate(&self, work: &Work<'_>, span: &Span) -> Result<()> {
        loop {
            // SAFETY: the range is this mapping.
            let status =
                unsafe { libc::madvise(self.start.cast(), self.bytes, libc::MADV_POPULATE_READ) };
            if status == 0 {
                return Ok(());
            }
            let error = std::io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => {}
                // Before Linux 5.14 pinning brings the pages in by itself.
                Some(libc::EINVAL) => return Ok(()),
                // Where read(2) would find the end of the file or EIO.
                Some(libc::EFAULT) => {
                    let size = work.file.size()?;
                    return Err(if size < span.end() {
                        work.ended(span.offset, span.length)
                    } else {
                        let eio = std::io::Error::from_raw_os_error(libc::EIO);
                        work.failed(&eio, span.offset, span.length)
                    });
                }
                _ => return Err(work.failed(&error, span.offset, span.length)),
            }
        }
    }

    fn pin(&mut self, context: &Arc<Context>) -> Result<bool> {
        let driver = context.driver;
        // SAFETY: the range is this mapping, which stays until `drop` has unpinned it.
        let code = unsafe {
            (driver.cuda.cuMemHostRegister)(
                self.start.cast(),
                self.bytes,
                cuda::CU_MEMHOSTREGISTER_READ_ONLY,
            )
        };
        match code {
            cuda::CUDA_SUCCESS => {
                self.pinned_in = Some(Arc::clone(context));
                Ok(true)
            }
            // What the driver answers for pages that it may not pin.
            cuda::CUDA_ERROR_INVALID_VALUE
            | cuda::CUDA_ERROR_NOT_SUPPORTED
            | cuda::CUDA_ERROR_NOT_PERMITTED
            | cuda::CUDA_ERROR_OPERATING_SYSTEM => Ok(false),
            _ => driver
                .check(code, "cuMemHostRegister of file pages")
                .map(|()| false),
        }
    }

    /// # Safety
    /// `offset` lies within the mapped range of the file.
    pub unsafe fn byte(&self, offset: u64) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { self.start.add((offset - self.offset) as usize) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // Any thread may drop the map, also one that works in another context.
        if let Some(context) = self.pinned_in.take()
            && let Ok(_entered) = context.enter()
        {
            // SAFETY: registered in `pin`; no copy out of it is under way, since lanes finish
            // their queue before they release maps.
            unsafe { (context.driver.cuda.cuMemHostUnregister)(self.start.cast()) };
        }
        // SAFETY: the mapping made in `new`; nobody holds a pointer into it.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
