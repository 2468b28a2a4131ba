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
            let copy = |some: Range<usize>| {
                let (from, to) = (from + some.start, to + some.start);
                // SAFETY: the caller vouches for the source; the pages are as long, and belong to this
                // call alone.
                unsafe { ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, some.len()) };
            };
            share(end - start, end - start, page_size() as usize, &copy);
        }
        Ok(copied)
    }

    /// # Safety
    /// `touched` are valid elements of `size` bytes in host memory, counted from `address`; `part` is in an element.
    pub(crate) unsafe fn of_parts(
        address: usize,
        touched: Range<u64>,
        size: u64,
        part: Range<u64>,
    ) -> Result<OnHost> {
        let length = (part.end - part.start) as usize;
        let elements = (touched.start / size) as usize..(touched.end / size) as usize;
        let copied = OnHost::room((elements.end * length) as u64)?;
        let (from, to) = (address + part.start as usize, copied.address);
        let copy = move |some: Range<usize>| {
            for at in elements.start + some.start..elements.start + some.end {
                let (from, to) = (from + at * size as usize, to + at * length);
                // SAFETY: the caller vouches for the element; the copy has a place for each part.
                unsafe { ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, length) };
            }
        };
        share(elements.len(), elements.len() * size as usize, 1, &copy);
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
        if let (Some(stream), Some(context)) = (stream, &memory.context) {
            stream.mark(context)?.wait()?;
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
        let unit = if bytes < HUGE_PAGE {
            page_size() as usize
        } else {
            HUGE_PAGE
        };
        let made = bytes
            .checked_next_multiple_of(unit)
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

/// Does parts of some work, of which each thread but the last has a multiple of `multiple`. Several threads do it if
/// its bytes justify them.
fn share(work: usize, bytes: usize, multiple: usize, part: &(impl Fn(Range<usize>) + Sync)) {
    let threads = cores().unwrap_or(1).min(MOST_THREADS).min(bytes / SHARE);
    if threads < 2 {
        part(0..work);
        return;
    }
    let share = work.div_ceil(threads).next_multiple_of(multiple);
    let of = |start: usize| start..work.min(start + share);
    thread::scope(|scope| {
        for start in (share..work).step_by(share) {
            // If no thread can be started, this one does the part.
            let started = threads::start_scoped(scope, "penstock-copy", move || part(of(start)));
            if started.is_err() {
                part(of(start));
            }
        }
        part(of(0));
    });
}
