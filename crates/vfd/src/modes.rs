//! Modes for comparison: transfers of raw data as programs make them without Penstock's engine (Ravi,
//! Byna, Koziol, "GPU Direct I/O with HDF5", PDSW 2020). Each mode is as fast as its method allows.
//!
//! - `sec2`, `sec2+pinned`: one `pread` or `pwrite` and one copy, through a buffer as large as the
//!   request;
//! - `direct`, `direct+pinned`: the same with direct I/O; the unaligned head and tail of a write,
//!   which O_DIRECT does not accept, go through the page cache;
//! - `posix-mt`: several threads, each with a buffer of one block;
//! - `gds`: the engine's route `gds` for all bytes, or an error.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex};

use penstock_engine::copy::Copies;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::file::side::{Direct, FileSide};
use penstock_engine::memory::Memory;
use penstock_engine::options::Options;
use penstock_engine::report::Path;
use penstock_engine::staging::{Ring, Slot};
use penstock_engine::{Extent, Recover, threads};

use crate::account::Way;

/// What moves raw data in GPU memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The engine, by the route that its options or its choice name.
    #[default]
    Auto,
    /// The engine, by the route `gds`.
    Gds,
    /// Host buffers of the mode, without the engine.
    Plain(Plain),
}

/// Moves extents through host buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    /// Whether system calls bypass the page cache.
    is_direct: bool,
    /// Whether buffers are page-locked, so that the GPU accesses them directly. The CUDA driver copies
    /// others once more.
    is_pinned: bool,
    /// Whether several threads move blocks, also of host memory. Otherwise, the calling thread moves
    /// each extent as a whole, and the driver moves host memory by itself.
    pub(crate) has_threads: bool,
}

const fn plain(is_direct: bool, is_pinned: bool, has_threads: bool) -> Mode {
    Mode::Plain(Plain {
        is_direct,
        is_pinned,
        has_threads,
    })
}

/// All modes, by the values of the option `mode`.
pub(crate) const MODES: [(&str, Mode); 7] = [
    ("auto", Mode::Auto),
    ("sec2", plain(false, false, false)),
    ("direct", plain(true, false, false)),
    ("sec2+pinned", plain(false, true, false)),
    ("direct+pinned", plain(true, true, false)),
    ("posix-mt", plain(false, false, true)),
    ("gds", Mode::Gds),
];

/// Default block of several threads: that of the engine's staged route.
const BLOCK: u64 = 4 << 20;

/// The buffers, of powers of two. They stay until the process ends, as a program would keep its own buffers from
/// file to file: allocating and pinning a buffer takes as long as moving the bytes.
static BUFFERS: LazyLock<Ring> = LazyLock::new(|| Ring::new(i64::MAX as u64));

/// A part of an extent, and the memory of the extent if it is on a GPU.
type Block<'a> = (Extent, Option<&'a Memory>);

impl Plain {
    /// Returns the path of moved bytes for the driver's report.
    pub(crate) fn way(self, is_on_gpu: bool) -> Way {
        match (is_on_gpu, self.is_pinned) {
            (false, _) => Way::By(Path::HostBuffered),
            (true, false) => Way::Pageable,
            (true, true) => Way::Pinned,
        }
    }

    /// Moves the extents. A read has no extents past the end of the file.
    ///
    /// # Safety
    /// The memory of each extent is valid and of the kind that `is_on_gpu` says (writable, if the
    /// operation is a read), and nothing else accesses it until the call returns.
    pub(crate) unsafe fn run(
        self,
        mut side: FileSide<'_>,
        options: Options,
        extents: &[Extent],
        is_on_gpu: bool,
    ) -> Result<()> {
        let file = side.file;
        if self.is_direct {
            side.direct = Direct::Always;
        }
        if self.is_direct && !file.has_direct() {
            let error = Error::new(Kind::Unavailable, "the file system has no direct I/O here");
            return Err(error
                .remedy("use mode=sec2 or mode=sec2+pinned")
                .in_file(file.path()));
        }
        let places: Vec<Option<Memory>> = extents
            .iter()
            .map(|extent| is_on_gpu.then(|| Memory::at(extent.memory)).transpose())
            .collect::<Result<_>>()?;
        let (block, most) = match (self.has_threads, options.threads) {
            (false, _) => (u64::MAX, 1),
            (true, threads) => {
                let cores = || penstock_engine::cores();
                let most = threads.map_or_else(cores, |threads| Ok(threads as usize))?;
                (options.block.unwrap_or(BLOCK), most)
            }
        };
        let blocks = cut(extents, &places, block);
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let one = || {
            // Blocks that no thread has begun are left after an error.
            let blocks = std::iter::from_fn(|| blocks.get(next.fetch_add(1, Relaxed)));
            // SAFETY: upheld by the caller; no block is given to two threads.
            if let Err(error) = unsafe { self.move_blocks(side, blocks) } {
                next.store(usize::MAX / 2, Relaxed);
                failed.lock().recover().get_or_insert(error);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..most.min(blocks.len()) {
                // Fewer threads also complete the transfer.
                if threads::start_scoped(scope, "penstock-posix-mt", one).is_err() {
                    break;
                }
            }
            one();
        });
        failed.into_inner().recover().map_or(Ok(()), Err)
    }

    /// Moves blocks on this thread.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn move_blocks<'a>(
        self,
        side: FileSide<'_>,
        blocks: impl Iterator<Item = &'a Block<'a>>,
    ) -> Result<()> {
        let align = if self.is_direct {
            side.file.direct_alignment()
        } else {
            1
        };
        let mut buffer: Option<Slot> = None;
        let mut copies: Option<(&Memory, Copies<'_>)> = None;
        for (extent, place) in blocks {
            let Some(memory) = place else {
                // SAFETY: host memory, which the caller guarantees to be valid.
                unsafe {
                    side.move_buffered(extent.memory as *mut u8, extent.offset, extent.length)?;
                }
                continue;
            };
            let at = |error: Error| error.at(side.file.path(), extent.offset, extent.length);
            // The buffer begins with the byte of the file at the start of a page.
            let head = extent.offset % align;
            let padded = (head + extent.length).next_multiple_of(align);
            if buffer
                .as_ref()
                .is_none_or(|slot| (slot.bytes() as u64) < padded)
            {
                let own = memory.context.as_ref().filter(|_| self.is_pinned);
                let own = own.map(|context| context.own()).transpose().map_err(at)?;
                drop(buffer.take());
                buffer = Some(BUFFERS.slot(padded, own).map_err(at)?);
            }
            let start = buffer.as_ref().map_or(std::ptr::null_mut(), Slot::start);
            copies.take_if(|(known, _)| !known.same_place(memory));
            let copies = match &mut copies {
                Some((_, copies)) => copies,
                none => &mut none.insert((memory, Copies::with(memory).map_err(at)?)).1,
            };
            let (from, length) = (start as usize + head as usize, extent.length as usize);
            // SAFETY: the buffer holds the padded block; the caller guarantees the memory.
            unsafe {
                match side.operation {
                    Operation::Read => {
                        self.move_file(side, extent, start, head, padded)?;
                        copies.copy(extent.memory, from, length).map_err(at)?;
                        copies.finish().map_err(at)?;
                    }
                    Operation::Write => {
                        let copied = copies.copy(from, extent.memory, length);
                        copied.and_then(|()| copies.finish()).map_err(at)?;
                        self.move_file(side, extent, start, head, padded)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Moves a block between the file and a buffer that begins `head` bytes before it.
    ///
    /// # Safety
    /// The buffer has `padded` bytes, which no other code accesses until the call returns.
    unsafe fn move_file(
        self,
        side: FileSide<'_>,
        extent: &Extent,
        buffer: *mut u8,
        head: u64,
        padded: u64,
    ) -> Result<()> {
        let (first, end) = (extent.offset - head, extent.offset + extent.length);
        // SAFETY: passed on; the results are inside the buffer.
        unsafe {
            let at = |offset: u64| buffer.add((offset - first) as usize);
            if !self.is_direct {
                return side.move_buffered(buffer, extent.offset, extent.length);
            }
            if side.operation == Operation::Read {
                let needed = head + extent.length;
                return side.move_direct(buffer, first, padded, needed).map(drop);
            }
            let align = side.file.direct_alignment();
            let whole = extent.offset.next_multiple_of(align).min(end);
            let rest = (end / align * align).max(whole);
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
    }
}

/// Cuts extents at file offsets that are multiples of `block`.
fn cut<'a>(extents: &[Extent], places: &'a [Option<Memory>], block: u64) -> Vec<Block<'a>> {
    let mut blocks = Vec::new();
    for (extent, place) in extents.iter().zip(places) {
        let end = extent.offset + extent.length;
        let mut offset = extent.offset;
        while offset < end {
            let next = (offset / block + 1).saturating_mul(block).min(end);
            let part = Extent {
                offset,
                length: next - offset,
                memory: extent.memory + (offset - extent.offset) as usize,
            };
            blocks.push((part, place.as_ref()));
            offset = next;
        }
    }
    blocks
}

#[cfg(test)]
mod tests;
