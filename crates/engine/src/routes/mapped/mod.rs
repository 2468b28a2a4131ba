//! `mapped`: pages of the cache are mapped, pinned in place, and pulled by the GPU. The CPU copies
//! nothing, so one thread can keep the link busy. Reads only: the kernel does not let file pages
//! be pinned for a device to write to.

use super::staged::Lent;
use super::{Lane, Route, STAGED, Work};
use crate::error::{Error, Result};
use crate::file::page_size;
use crate::file::position::{Call, Operation};
use crate::gpu::{Context, Direction};
use crate::options::RouteName;
use crate::plan::{Block, Span};
use crate::report::Path;
use penstock_sys::cuda;
use std::ptr;
use std::sync::Arc;

pub(crate) struct Mapped;

impl Route for Mapped {
    fn name(&self) -> RouteName {
        RouteName::Mapped
    }
    fn lane<'a>(&'a self, work: Work<'a>) -> Result<Box<dyn Lane + 'a>> {
        let context = work.gpu_context()?;
        if work.operation == Operation::Write {
            work.counters
                .note("the mapped route only reads; written by the staged route");
            return STAGED.lane(work);
        }
        if !context.registers_read_only {
            work.counters
                .note("this GPU cannot pin read-only mappings; read by the staged route");
            return STAGED.lane(work);
        }
        Ok(Box::new(MappedLane {
            work,
            lent: Lent::new(context)?,
            windows: Default::default(),
            turn: 0,
            instead: None,
        }))
    }
}

/// How many blocks of a lane are mapped at a time: one being pulled, one being pinned.
const WINDOWS: usize = 2;

struct MappedLane<'a> {
    work: Work<'a>,
    // Dropped first: ends all copies before the windows are unpinned.
    lent: Lent<'a>,
    windows: [Option<Open>; WINDOWS],
    turn: usize,
    /// Serves blocks that could not be pinned.
    instead: Option<Box<dyn Lane + 'a>>,
}

/// A block whose pages are pinned and being pulled.
struct Open {
    maps: Vec<Map>,
    bytes: u64,
    end: u64,
}

impl MappedLane<'_> {
    fn settle(&mut self, index: usize) -> Result<()> {
        let Some(open) = self.windows[index].take() else {
            return Ok(());
        };
        self.lent.queue()?.wait(index)?;
        // Pages cut off by a truncation stay pinned and are pulled as they are; only the length
        // tells that they no longer belong to the file.
        if self.work.file.size()? < open.end {
            return Err(self.work.ended(open.end - open.bytes, open.bytes));
        }
        self.work.counters.moved(Path::Mapped, open.bytes);
        Ok(())
    }

    /// Pins the pages of a block and queues the copies out of them. `None` if the driver or the
    /// file system does not allow it.
    fn pull(&mut self, index: usize, block: &Block) -> Result<Option<Open>> {
        let mut open = Open {
            maps: Vec::new(),
            bytes: block.bytes,
            end: 0,
        };
        for span in self.work.plan.spans(block) {
            let Some(map) = Map::new(&self.work, span, self.lent.context())? else {
                return Ok(None);
            };
            open.end = open.end.max(span.end());
            open.maps.push(map);
        }
        let queue = self.lent.queue()?;
        for (span, map) in self.work.plan.spans(block).iter().zip(&open.maps) {
            for piece in self.work.plan.pieces(span) {
                self.work.counters.copy();
                // SAFETY: the piece lies in the span, whose pages stay pinned until `settle` has
                // waited for the mark; the submitter vouches for the GPU memory.
                let queued = unsafe {
                    let host = map.byte(piece.offset);
                    queue.copy(Direction::ToGpu, host, piece.memory as u64, piece.length)
                };
                if let Err(e) = queued {
                    // Earlier copies of this block may be under way out of the maps.
                    let _ = queue.finish();
                    return Err(e);
                }
            }
        }
        if let Err(e) = queue.mark(index) {
            let _ = queue.finish();
            return Err(e);
        }
        Ok(Some(open))
    }
}

impl Lane for MappedLane<'_> {
    fn carry(&mut self, block: &Block) -> Result<()> {
        let index = self.turn;
        self.settle(index)?;
        match self.pull(index, block)? {
            Some(open) => {
                self.windows[index] = Some(open);
                self.turn = (index + 1) % WINDOWS;
                Ok(())
            }
            None => {
                self.work
                    .counters
                    .note("pages of this file cannot be pinned; read by the staged route");
                if self.instead.is_none() {
                    self.instead = Some(STAGED.lane(self.work)?);
                }
                match &mut self.instead {
                    Some(lane) => lane.carry(block),
                    None => Ok(()),
                }
            }
        }
    }

    fn drain(&mut self) -> Result<()> {
        for step in 0..WINDOWS {
            self.settle((self.turn + step) % WINDOWS)?;
        }
        match &mut self.instead {
            Some(lane) => lane.drain(),
            None => Ok(()),
        }
    }
}

/// Pages of the file, mapped read-only, present, and pinned for the GPU.
struct Map {
    start: *mut u8,
    bytes: usize,
    /// File offset of `start`.
    offset: u64,
    pinned_in: Option<Arc<Context>>,
}

impl Map {
    fn new(work: &Work<'_>, span: &Span, context: &Arc<Context>) -> Result<Option<Map>> {
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
    unsafe fn byte(&self, offset: u64) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { self.start.add((offset - self.offset) as usize) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if let Some(context) = self.pinned_in.take() {
            // SAFETY: registered in `pin`, in the context that the lane keeps current; no copy out
            // of it is under way, since lanes settle or finish their queue first.
            unsafe { (context.driver.cuda.cuMemHostUnregister)(self.start.cast()) };
        }
        // SAFETY: the mapping made in `new`; nobody holds a pointer into it.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}
