//! Copies in pageable memory.

use std::ops::Range;
use std::sync::Mutex;
use std::{io, ptr, thread};

use crate::copy::Copies;
use crate::engine::cores;
use crate::error::{Error, Kind, Result};
use crate::file::page_size;
use crate::gpu::Pages;
use crate::gpu::stream::Stream;
use crate::memory::Memory;
use crate::sync::Recover;
use crate::threads;

/// Memory that holds a copy.
pub(super) struct OnHost {
    address: usize,
    /// Mapped pages. They stay zero where nothing was copied, and take no memory there. `None` for
    /// a small copy, and while this is dropped.
    pages: Option<Pages>,
    /// The memory of a small copy.
    _heap: Vec<u8>,
}

/// Smaller copies use the heap, which serves many small ones better.
const SMALL: usize = 64 << 10;

/// The fraction of the machine's memory, as its inverse, that is kept as pages for the next copy.
/// Fresh pages cost as much as filling them, since the kernel clears them.
const SPARE_SHARE: usize = 32;
static SPARE: Mutex<Vec<Pages>> = Mutex::new(Vec::new());

/// The least bytes that a thread copies, and the most threads. More of either gain nothing.
const SHARE: usize = 4 << 20;
const MOST_THREADS: usize = 8;
const HUGE_PAGE: usize = 2 << 20;

impl OnHost {
    /// # Safety
    /// `touched` is valid host memory, counted from `address`.
    pub(crate) unsafe fn of_host(address: usize, touched: Range<u64>) -> Result<OnHost> {
        let copied = OnHost::room(touched.end)?;
        if !touched.is_empty() {
            let (start, end) = (touched.start as usize, touched.end as usize);
            let (from, to) = (address + start, copied.address + start);
            // SAFETY: the caller vouches for the source; the pages are as long, and belong to this
            // call alone.
            unsafe { copy(from as *const u8, to as *mut u8, end - start) };
        }
        Ok(copied)
    }

    /// # Safety
    /// `touched` is valid GPU memory, counted from `address`; `stream` is live.
    pub(crate) unsafe fn of_gpu(
        memory: &Memory,
        address: usize,
        touched: Range<u64>,
        stream: Option<Stream>,
    ) -> Result<OnHost> {
        let copied = OnHost::room(touched.end)?;
        let (start, end) = (touched.start as usize, touched.end as usize);
        if let Some(stream) = stream {
            stream.synchronize(memory.device)?;
        }
        let mut copies = Copies::with(memory)?;
        // SAFETY: the caller vouches for the source; the pages are as long, and belong to this call
        // alone.
        unsafe { copies.copy(copied.address + start, address + start, end - start)? };
        copies.finish()?;
        Ok(copied)
    }

    /// Pages for this many bytes.
    fn room(bytes: u64) -> Result<OnHost> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
        let no_memory = |why: &dyn std::fmt::Display| {
            let text = format!("no memory for a copy of {bytes} bytes: {why}");
            Error::new(Kind::Memory, text)
                .remedy("free memory, or write without a copy (copy=never)")
        };
        if bytes < SMALL {
            let mut heap: Vec<u8> = Vec::new();
            heap.try_reserve_exact(bytes)
                .map_err(|error| no_memory(&error))?;
            return Ok(OnHost {
                address: heap.as_mut_ptr() as usize,
                pages: None,
                _heap: heap,
            });
        }
        let mut spare = SPARE.lock().recover();
        let fits = |pages: &Pages| (bytes..=bytes.saturating_mul(2)).contains(&pages.bytes());
        if let Some(at) = spare.iter().position(fits) {
            return Ok(OnHost::in_pages(spare.swap_remove(at)));
        }
        drop(spare);
        let rounded =
            bytes.checked_next_multiple_of(if bytes < HUGE_PAGE { 4096 } else { HUGE_PAGE });
        let made = rounded
            .ok_or(io::ErrorKind::OutOfMemory.into())
            .and_then(Pages::anonymous);
        let pages = made.map_err(|error| no_memory(&error))?;
        if bytes >= HUGE_PAGE {
            // Huge pages mean fewer page faults. The kernel may refuse them.
            let _ = pages.advise(libc::MADV_HUGEPAGE);
        }
        Ok(OnHost::in_pages(pages))
    }

    fn in_pages(pages: Pages) -> OnHost {
        OnHost {
            address: pages.start() as usize,
            pages: Some(pages),
            _heap: Vec::new(),
        }
    }

    pub(crate) fn address(&self) -> usize {
        self.address
    }
}

impl Drop for OnHost {
    fn drop(&mut self) {
        let Some(pages) = self.pages.take() else {
            return;
        };
        let mut spare = SPARE.lock().recover();
        let kept: usize = spare.iter().map(Pages::bytes).sum();
        if kept.saturating_add(pages.bytes()) <= most_spare() {
            spare.push(pages);
        }
    }
}

fn most_spare() -> usize {
    // SAFETY: sysconf only returns a number, -1 for an unknown one.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    usize::try_from(pages).map_or(0, |pages| pages.saturating_mul(page_size() as usize))
        / SPARE_SHARE
}

/// Copies, by several threads if the size justifies them.
///
/// # Safety
/// Both are valid for `length` bytes and do not overlap.
unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    let threads = cores().unwrap_or(1).min(MOST_THREADS).min(length / SHARE);
    if threads < 2 {
        // SAFETY: passed on.
        unsafe { ptr::copy_nonoverlapping(from, to, length) };
        return;
    }
    let share = length.div_ceil(threads).next_multiple_of(4096);
    let (from, to) = (from as usize, to as usize);
    let part = move |start: usize| {
        let bytes = share.min(length - start);
        // SAFETY: passed on: the parts lie inside, and are apart.
        unsafe {
            ptr::copy_nonoverlapping((from + start) as *const u8, (to + start) as *mut u8, bytes);
        }
    };
    thread::scope(|scope| {
        for start in (share..length).step_by(share) {
            // If no thread can be started, this one copies the part.
            let started = threads::start_scoped(scope, "penstock-copy", move || part(start));
            if started.is_err() {
                part(start);
            }
        }
        part(0);
    });
}
