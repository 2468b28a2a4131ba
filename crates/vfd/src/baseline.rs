//! Transfers of GPU data as programs make them without the engine, for comparison. Each mode is as
//! fast as its method allows.
//!
//! - `sec2`, `sec2+pinned`: one `pread` or `pwrite` and one copy, through a buffer as large as the
//!   request;
//! - `direct`, `direct+pinned`: the same with direct I/O; the unaligned head and tail of a write,
//!   which O_DIRECT does not accept, go through the page cache;
//! - `posix-mt`: several threads, each with a buffer of one block;
//! - `gds`: cuFile for all bytes, or an error.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use penstock_engine::Extent;
use penstock_engine::Recover;
use penstock_engine::copy::Copies;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::File;
use penstock_engine::file::position::{Gate, Operation};
use penstock_engine::file::side::{Direct, FileSide};
use penstock_engine::memory::{Memory, MemoryKind};
use penstock_engine::options::{Options, RouteName};
use penstock_engine::report::{Counters, Path};
use penstock_engine::threads;

use crate::account::{Account, Way};
use crate::bounce::{self, Buffer};
use crate::file::DriverFile;
use crate::settings::{Mode, Settings};

/// # Safety
/// As for `DriverFile::move_raw`, in GPU memory.
pub(crate) unsafe fn move_gpu(
    file: &DriverFile,
    operation: Operation,
    extents: &[Extent],
    settings: &Settings,
) -> Result<()> {
    if settings.mode == Mode::Gds {
        // SAFETY: upheld by the caller.
        return unsafe { by_cufile(file, operation, extents, settings.options) };
    }
    // SAFETY: upheld by the caller.
    unsafe {
        moved(
            file,
            operation,
            extents,
            settings,
            |mover, extents| match settings.mode {
                Mode::Sec2 => mover.one_by_one(extents, bounce::Kind::Pageable),
                Mode::Sec2Pinned => mover.one_by_one(extents, bounce::Kind::Pinned),
                Mode::Direct => mover.direct(extents, bounce::Kind::Pageable),
                Mode::DirectPinned => mover.direct(extents, bounce::Kind::Pinned),
                Mode::PosixMt => mover.by_threads(extents, settings.options, Side::Gpu),
                Mode::Auto | Mode::Gds => Err(Error::new(
                    Kind::Internal,
                    format!("the engine must carry out mode={}", settings.mode.name()),
                )),
            },
        )
    }
}

/// # Safety
/// As for `DriverFile::move_raw`, in host memory.
pub(crate) unsafe fn move_host(
    file: &DriverFile,
    operation: Operation,
    extents: &[Extent],
) -> Result<()> {
    let settings = file.settings_in_force()?;
    // SAFETY: upheld by the caller.
    unsafe {
        moved(file, operation, extents, &settings, |mover, extents| {
            mover.by_threads(extents, settings.options, Side::Host)
        })
    }
}

/// Does what precedes and follows a transfer in every mode.
///
/// # Safety
/// As for `DriverFile::move_raw`.
unsafe fn moved(
    file: &DriverFile,
    operation: Operation,
    extents: &[Extent],
    settings: &Settings,
    act: impl FnOnce(&Mover<'_>, &[Extent]) -> Result<()>,
) -> Result<()> {
    let within = match operation {
        // SAFETY: upheld by the caller.
        Operation::Read => unsafe { file.zero_beyond_the_end(extents)? },
        Operation::Write => None,
    };
    let engine = file.engine()?;
    let mover = Mover {
        file: engine,
        account: &file.account,
        operation,
        gate: None,
    };
    act(&mover, within.as_deref().unwrap_or(extents))?;
    if operation == Operation::Write {
        let ends = extents.iter().map(|extent| extent.offset + extent.length);
        file.grown_to(ends.max().unwrap_or(0));
        if settings.options.durable == Some(true) {
            engine.sync()?;
        }
    }
    Ok(())
}

/// # Safety
/// As for `DriverFile::move_raw`, in GPU memory.
unsafe fn by_cufile(
    file: &DriverFile,
    operation: Operation,
    extents: &[Extent],
    options: Options,
) -> Result<()> {
    for extent in extents {
        if Memory::at(extent.memory)?.kind == MemoryKind::Managed {
            return Err(
                Error::new(Kind::Unavailable, "cuFile does not take managed memory")
                    .remedy("use memory from cudaMalloc, or mode=auto")
                    .at(file.path(), extent.offset, extent.length),
            );
        }
    }
    let options = Options {
        route: Some(RouteName::Gds),
        ..options
    };
    // SAFETY: upheld by the caller.
    unsafe { file.by_engine(operation, extents, None, options) }.map_err(|error| {
        // The mode determined the route.
        let remedy = error.remedy_text().replace("route=auto", "mode=auto");
        error.remedy(remedy)
    })
}

/// The kind of a request's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Host,
    Gpu,
}

/// Moves ranges of one file in one direction.
struct Mover<'a> {
    file: &'a Arc<File>,
    account: &'a Account,
    operation: Operation,
    /// Intercepts system calls in tests.
    gate: Option<&'a dyn Gate>,
}

/// Default block of `posix-mt`: that of the engine's staged route.
const BLOCK: u64 = 4 << 20;

impl Mover<'_> {
    fn side<'b>(&'b self, direct: Direct, counters: &'b Counters) -> FileSide<'b> {
        FileSide {
            direct,
            gate: self.gate,
            ..FileSide::new(self.file, self.operation, counters)
        }
    }

    /// Moves ranges through the page cache, one at a time.
    ///
    /// # Safety
    /// The memory of each extent is valid GPU memory (for writing, if the operation is a read), and
    /// nothing else accesses it until the call returns.
    unsafe fn one_by_one(&self, extents: &[Extent], kind: bounce::Kind) -> Result<()> {
        let counters = Counters::default();
        let side = self.side(Direct::Never, &counters);
        for extent in extents {
            let since = Instant::now();
            let buffer = Buffer::new(kind, extent.length)?;
            // SAFETY: the buffer is as long as the range; the caller guarantees that its memory is
            // valid.
            unsafe {
                self.by_way_of(extent, buffer.start(), || {
                    side.move_buffered(buffer.start(), extent.offset, extent.length)
                })?;
            }
            self.count(kind, extent.length, since);
        }
        Ok(())
    }

    /// Moves ranges with direct I/O, one at a time.
    ///
    /// # Safety
    /// As for [`one_by_one`](Self::one_by_one).
    unsafe fn direct(&self, extents: &[Extent], kind: bounce::Kind) -> Result<()> {
        if !self.file.has_direct() {
            return Err(
                Error::new(Kind::Unavailable, "the file system has no direct I/O here")
                    .remedy("use mode=sec2 or mode=sec2+pinned")
                    .in_file(self.file.path()),
            );
        }
        let counters = Counters::default();
        let side = self.side(Direct::Always, &counters);
        let align = self.file.direct_alignment();
        for extent in extents {
            let since = Instant::now();
            let head = extent.offset % align;
            let padded = (head + extent.length).next_multiple_of(align);
            let buffer = Buffer::new(kind, padded)?;
            // The buffer starts with the byte of the file at the start of a page.
            let first = extent.offset - head;
            // SAFETY: the result is inside the buffer.
            let at = |offset: u64| unsafe { buffer.start().add((offset - first) as usize) };
            let io = || {
                let end = extent.offset + extent.length;
                if self.operation == Operation::Read {
                    let needed = head + extent.length;
                    // SAFETY: the buffer holds the pages that contain the range.
                    let all = unsafe { side.move_direct(at(first), first, padded, needed) };
                    return all.map(drop);
                }
                let whole = extent.offset.next_multiple_of(align).min(end);
                let rest = (end / align * align).max(whole);
                // SAFETY: the buffer holds the range.
                unsafe {
                    if rest > whole {
                        side.move_direct(at(whole), whole, rest - whole, rest - whole)?;
                    }
                    for (from, to) in [(extent.offset, whole), (rest, end)] {
                        if to > from {
                            side.move_buffered(at(from), from, to - from)?;
                        }
                    }
                }
                Ok(())
            };
            // SAFETY: the buffer holds the range; the caller guarantees that its memory is valid.
            unsafe { self.by_way_of(extent, at(extent.offset), io)? };
            self.count(kind, extent.length, since);
        }
        Ok(())
    }

    /// Moves a range between file and buffer by `io`, and between buffer and GPU by a copy, in the
    /// order of the operation.
    ///
    /// # Safety
    /// As for [`one_by_one`](Self::one_by_one), and the buffer is as long as the range.
    unsafe fn by_way_of(
        &self,
        extent: &Extent,
        buffer: *mut u8,
        io: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let at = |error: Error| error.at(self.file.path(), extent.offset, extent.length);
        let memory = Memory::at(extent.memory).map_err(at)?;
        let length = extent.length as usize;
        match self.operation {
            Operation::Read => {
                io()?;
                let mut copies = Copies::with(&memory).map_err(at)?;
                // SAFETY: the caller guarantees both ranges, which stay valid until the copy has
                // finished.
                unsafe { copies.copy(extent.memory, buffer as usize, length) }
                    .and_then(|()| copies.finish())
                    .map_err(at)
            }
            Operation::Write => {
                let mut copies = Copies::with(&memory).map_err(at)?;
                // SAFETY: the caller guarantees both ranges, which stay valid until the copy has
                // finished.
                unsafe { copies.copy(buffer as usize, extent.memory, length) }
                    .and_then(|()| copies.finish())
                    .map_err(at)?;
                drop(copies);
                io()
            }
        }
    }

    /// Moves blocks by several threads, the calling one included. After it returns, none of them
    /// accesses the memory.
    ///
    /// # Safety
    /// As for [`one_by_one`](Self::one_by_one), in memory of that side.
    unsafe fn by_threads(&self, extents: &[Extent], options: Options, side: Side) -> Result<()> {
        let since = Instant::now();
        let block = options.block.unwrap_or(BLOCK);
        let work = Blocks::cut(extents, block, side)?;
        let threads = match options.threads {
            Some(threads) => threads as usize,
            None => penstock_engine::cores()?,
        };
        let failed = Mutex::new(None);
        let stop = AtomicBool::new(false);
        let one = || {
            // SAFETY: upheld by the caller; no block is given to two threads.
            if let Err(error) = unsafe { self.blocks(&work, block, &stop) } {
                stop.store(true, Relaxed);
                let mut failed = failed.lock().recover();
                failed.get_or_insert(error);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(work.blocks.len()) {
                // Fewer threads also complete the transfer.
                if threads::start_scoped(scope, "penstock-posix-mt", one).is_err() {
                    break;
                }
            }
            one();
        });
        if let Some(error) = failed.into_inner().recover() {
            return Err(error);
        }
        let bytes = extents.iter().map(|extent| extent.length).sum();
        match side {
            Side::Gpu => self.count(bounce::Kind::Pageable, bytes, since),
            Side::Host => {
                let way = Way::By(Path::HostBuffered);
                self.account.moved(self.operation, way, bytes, since);
            }
        }
        Ok(())
    }

    /// Runs one thread: moves blocks until none is left or `stop` is set.
    ///
    /// # Safety
    /// As for [`by_threads`](Self::by_threads).
    unsafe fn blocks(&self, work: &Blocks, block: u64, stop: &AtomicBool) -> Result<()> {
        let counters = Counters::default();
        let side = self.side(Direct::Never, &counters);
        let mut copies: Option<(usize, Copies<'_>)> = None;
        let mut buffer: Option<Buffer> = None;
        while !stop.load(Relaxed) {
            let Some((extent, place)) = work.next() else {
                break;
            };
            let Some(place) = place else {
                // SAFETY: host memory, which the caller guarantees to be valid.
                unsafe {
                    side.move_buffered(extent.memory as *mut u8, extent.offset, extent.length)?;
                }
                continue;
            };
            let at = |error: Error| error.at(self.file.path(), extent.offset, extent.length);
            let start = match &buffer {
                Some(buffer) => buffer.start(),
                None => buffer
                    .insert(Buffer::new(bounce::Kind::Pageable, block).map_err(at)?)
                    .start(),
            };
            let copies = match &mut copies {
                Some((known, copies)) if *known == place => copies,
                other => {
                    if let Some((_, before)) = other {
                        before.finish().map_err(at)?;
                    }
                    let with = Copies::with(&work.places[place]).map_err(at)?;
                    &mut other.insert((place, with)).1
                }
            };
            let length = extent.length as usize;
            // SAFETY: the buffer is as long as a block; the caller guarantees the memory. A copy
            // from a pageable buffer to the GPU no longer needs the buffer when it returns.
            unsafe {
                if self.operation == Operation::Read {
                    side.move_buffered(start, extent.offset, extent.length)?;
                    copies
                        .copy(extent.memory, start as usize, length)
                        .map_err(at)?;
                } else {
                    copies
                        .copy(start as usize, extent.memory, length)
                        .and_then(|()| copies.finish())
                        .map_err(at)?;
                    side.move_buffered(start, extent.offset, extent.length)?;
                }
            }
        }
        match copies {
            Some((_, mut copies)) => copies.finish().map_err(|e| e.in_file(self.file.path())),
            None => Ok(()),
        }
    }

    fn count(&self, kind: bounce::Kind, bytes: u64, since: Instant) {
        let way = match kind {
            bounce::Kind::Pageable => Way::Pageable,
            bounce::Kind::Pinned => Way::Pinned,
        };
        self.account.moved(self.operation, way, bytes, since);
    }
}

/// Ranges cut into blocks, which threads take one after another.
struct Blocks {
    /// Descriptions of the GPU memory; many ranges share one.
    places: Vec<Memory>,
    /// Each block with the index of its GPU memory; `None` for host memory.
    blocks: Vec<(Extent, Option<usize>)>,
    next: AtomicUsize,
}

impl Blocks {
    /// Cuts ranges at file offsets that are multiples of `block`.
    fn cut(extents: &[Extent], block: u64, side: Side) -> Result<Blocks> {
        let mut places: Vec<Memory> = Vec::new();
        let mut blocks = Vec::new();
        for extent in extents {
            let place = match side {
                Side::Host => None,
                Side::Gpu => {
                    let memory = Memory::at(extent.memory)?;
                    let known = places.iter().position(|place| place.same_place(&memory));
                    Some(known.unwrap_or_else(|| {
                        places.push(memory);
                        places.len() - 1
                    }))
                }
            };
            let end = extent.offset + extent.length;
            let mut offset = extent.offset;
            while offset < end {
                let cut = ((offset / block + 1) * block).min(end);
                let part = Extent {
                    offset,
                    length: cut - offset,
                    memory: extent.memory + (offset - extent.offset) as usize,
                };
                blocks.push((part, place));
                offset = cut;
            }
        }
        Ok(Blocks {
            places,
            blocks,
            next: AtomicUsize::new(0),
        })
    }

    fn next(&self) -> Option<(Extent, Option<usize>)> {
        self.blocks.get(self.next.fetch_add(1, Relaxed)).copied()
    }
}

#[cfg(test)]
mod tests;
