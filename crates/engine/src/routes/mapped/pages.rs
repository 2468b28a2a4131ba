//! Pages of a file, mapped read-only, present, and pinned for the GPU.

use std::sync::Arc;

use penstock_sys::cuda;

use crate::error::{Error, Result};
use crate::file::page_size;
use crate::file::position::{Call, Operation};
use crate::gpu::{Context, Pages};
use crate::plan::Span;
use crate::routes::Work;

pub(super) struct Map {
    pages: Pages,
    /// File offset of the first page.
    offset: u64,
}

impl Map {
    /// The pages of a span. `None` if the driver or the file system does not let them be pinned.
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
        let pages = match Pages::of_file(work.file.buffered_fd(), offset, bytes) {
            Ok(pages) => pages,
            Err(e) => {
                return match e.raw_os_error() {
                    Some(libc::ENODEV | libc::EACCES) => Ok(None),
                    _ => Err(Error::os(&e, "cannot map the file").at(
                        work.file.path(),
                        span.offset,
                        span.length,
                    )),
                };
            }
        };
        let mut map = Map { pages, offset };
        map.populate(work, span)?;
        Ok(map.pin(context)?.then_some(map))
    }

    /// Brings the pages in, reading those that are not cached. An error shows here, in a system
    /// call, rather than as a signal.
    fn populate(&self, work: &Work<'_>, span: &Span) -> Result<()> {
        loop {
            let Err(error) = self.pages.advise(libc::MADV_POPULATE_READ) else {
                return Ok(());
            };
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
        let code = self
            .pages
            .pin(context, cuda::CU_MEMHOSTREGISTER_READ_ONLY)?;
        match code {
            cuda::CUDA_SUCCESS => Ok(true),
            // What the driver answers for pages that it may not pin.
            cuda::CUDA_ERROR_INVALID_VALUE
            | cuda::CUDA_ERROR_NOT_SUPPORTED
            | cuda::CUDA_ERROR_NOT_PERMITTED
            | cuda::CUDA_ERROR_OPERATING_SYSTEM => Ok(false),
            _ => context
                .driver
                .check(code, "cuMemHostRegister of file pages")
                .map(|()| false),
        }
    }

    /// Where a byte of the file lies in memory.
    ///
    /// # Safety
    /// `offset` lies within the mapped range of the file.
    pub unsafe fn byte(&self, offset: u64) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { self.pages.start().add((offset - self.offset) as usize) }
    }
}
