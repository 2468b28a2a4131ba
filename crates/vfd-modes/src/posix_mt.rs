//! `posix-mt`: several threads move blocks, each through its own buffer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use penstock_engine::copy::Copies;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::file::side::Direct;
use penstock_engine::memory::Memory;
use penstock_engine::report::Counters;
use penstock_engine::{Extent, Recover, threads};

use crate::buffer::{Buffer, Kind};
use crate::transfer::{Transfer, Way};
use crate::{Mode, Side};

/// Default block: that of the engine's staged route.
const BLOCK: u64 = 4 << 20;

/// Moves blocks of GPU or host memory by several threads.
#[derive(Debug)]
pub(crate) struct PosixMt;

impl Mode for PosixMt {
    fn name(&self) -> &'static str {
        "posix-mt"
    }

    fn moves(&self, _: Side) -> bool {
        true
    }

    /// Moves blocks by several threads, including the calling one. No thread accesses the memory
    /// after the return.
    unsafe fn run(&self, transfer: &Transfer<'_>, side: Side, extents: &[Extent]) -> Result<()> {
        let since = Instant::now();
        let block = transfer.options.block.unwrap_or(BLOCK);
        let work = Blocks::cut(extents, block, side)?;
        let threads = match transfer.options.threads {
            Some(threads) => threads as usize,
            None => penstock_engine::cores()?,
        };
        let failed = Mutex::new(None);
        let stop = AtomicBool::new(false);
        let one = || {
            // SAFETY: upheld by the caller; no block is given to two threads.
            if let Err(error) = unsafe { move_blocks(transfer, &work, block, &stop) } {
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
        let way = match side {
            Side::Gpu => Way::Buffer(Kind::Pageable),
            Side::Host => Way::Host,
        };
        (transfer.record)(way, bytes, since);
        Ok(())
    }
}

/// Runs one thread: moves blocks until none is left or `stop` is set.
///
/// # Safety
/// As for [`Mode::run`].
unsafe fn move_blocks(
    transfer: &Transfer<'_>,
    work: &Blocks,
    block: u64,
    stop: &AtomicBool,
) -> Result<()> {
    let counters = Counters::default();
    let side = transfer.side(Direct::Never, &counters);
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
        let at = |error: Error| error.at(transfer.file.path(), extent.offset, extent.length);
        let start = match &buffer {
            Some(buffer) => buffer.start(),
            None => buffer
                .insert(Buffer::new(Kind::Pageable, block).map_err(at)?)
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
            if transfer.operation == Operation::Read {
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
        Some((_, mut copies)) => copies.finish().map_err(|e| e.in_file(transfer.file.path())),
        None => Ok(()),
    }
}

/// Ranges cut into blocks. Each thread takes the next block.
struct Blocks {
    /// Descriptions of the GPU memory; several ranges may share one.
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
