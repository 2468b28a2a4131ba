//! Pages of a file that are mapped read-only, populated, and pinned for the GPU.

use std::ops::Range;
use std::sync::Arc;

use penstock_sys::cuda;

use crate::error::{Error, Result};
use crate::file::page_size;
use crate::file::position::{Call, Operation};
use crate::gpu::{OwnContext, Pages};
use crate::plan::{Extent, Span};
use crate::routes::Work;

pub(super) struct Map {
    pages: Pages,
    /// File offset of the first page.
    offset: u64,
    /// File offset behind the stretch.
    end: u64,
}

/// Bytes between two spans up to which one mapping serves both.
const GAP: u64 = 64 << 10;

/// The stretches of a file that are mapped for some spans; neighbours share one.
pub(super) fn stretches(spans: &[Span]) -> Vec<Range<u64>> {
    let mut stretches: Vec<Range<u64>> = Vec::new();
    for span in spans {
        match stretches.last_mut() {
            Some(last) if span.offset >= last.start && span.offset <= last.end + GAP => {
                last.end = last.end.max(span.end());
            }
            _ => stretches.push(span.offset..span.end()),
        }
    }
    stretches
}

/// The outcome of mapping a stretch.
pub(super) enum MapOutcome {
    Pinned(Map),
    /// Pages of this file cannot be pinned.
    Refused,
    /// The process has reached its limit of mappings.
    NoRoom,
}

impl Map {
    /// Maps and pins a stretch of the file.
    pub(crate) fn make(
        work: &Work<'_>,
        stretch: Range<u64>,
        context: &Arc<OwnContext>,
    ) -> Result<MapOutcome> {
        let page = page_size();
        let length = stretch.end - stretch.start;
        let offset = stretch.start / page * page;
        let bytes = (stretch.end - offset) as usize;
        let call = Call {
            operation: Operation::Read,
            offset: stretch.start,
            length,
        };
        if let Some(Err(e)) = work.gate.map(|gate| gate.before(call)) {
            return Err(work.failed(&e, stretch.start, length));
        }
        work.counters.io_call();
        let pages = match Pages::of_file(work.file.buffered_fd(), offset, bytes) {
            Ok(pages) => pages,
            Err(e) => {
                return match e.raw_os_error() {
                    Some(libc::ENODEV | libc::EACCES) => Ok(MapOutcome::Refused),
                    Some(libc::ENOMEM) => Ok(MapOutcome::NoRoom),
                    _ => Err(Error::os(&e, "cannot map the file").at(
                        work.file.path(),
                        stretch.start,
                        length,
                    )),
                };
            }
        };
        let mut map = Map {
            pages,
            offset,
            end: stretch.end,
        };
        map.populate(work, stretch)?;
        Ok(if map.pin(context)? {
            MapOutcome::Pinned(map)
        } else {
            MapOutcome::Refused
        })
    }

    /// Whether a range of the file lies in the mapping.
    pub(crate) fn holds(&self, piece: &Extent) -> bool {
        self.offset <= piece.offset && piece.end() <= self.end
    }

    /// Populates the mapping, which reads pages that are not cached. A failure is an error of this
    /// system call instead of a signal later.
    fn populate(&self, work: &Work<'_>, stretch: Range<u64>) -> Result<()> {
        let length = stretch.end - stretch.start;
        loop {
            let Err(error) = self.pages.advise(libc::MADV_POPULATE_READ) else {
                return Ok(());
            };
            match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => {}
                // Before Linux 5.14, pinning populates the mapping.
                Some(libc::EINVAL) => return Ok(()),
                // read(2) would reach the end of the file, or fail with EIO.
                Some(libc::EFAULT) => {
                    let size = work.file.size()?;
                    return Err(if size < stretch.end {
                        work.ended(stretch.start, length)
                    } else {
                        let eio = std::io::Error::from_raw_os_error(libc::EIO);
                        work.failed(&eio, stretch.start, length)
                    });
                }
                _ => return Err(work.failed(&error, stretch.start, length)),
            }
        }
    }

    fn pin(&mut self, context: &Arc<OwnContext>) -> Result<bool> {
        let code = self
            .pages
            .pin(context, cuda::CU_MEMHOSTREGISTER_READ_ONLY)?;
        match code {
            cuda::CUDA_SUCCESS => Ok(true),
            // The driver's results for pages that it cannot pin.
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

    /// The address of a byte of the file.
    ///
    /// # Safety
    /// `offset` lies within the mapped range of the file.
    pub(crate) unsafe fn byte(&self, offset: u64) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { self.pages.start().add((offset - self.offset) as usize) }
    }
}
