//! Small transfers that the calling thread carries out by itself: no job is made, no worker woken.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::Order;
use super::limits::{MOST_AT_ONCE, MOST_CACHED_AT_ONCE, MOST_UNSEEN};
use super::prepare::{merged, note_for_host};
use crate::changes::Changing;
use crate::engine::{Engine, engine};
use crate::error::Result;
use crate::file::File;
use crate::file::position::Operation;
use crate::file::side::FileSide;
use crate::gpu::stream::Stream;
use crate::gpu::{Context, Direction, QueueLease, any_stream_waits};
use crate::memory::Memory;
use crate::options::{Choice, IoMode, Options, RouteName};
use crate::report::{Counters, Path, Report};
use crate::routes::gds;
use crate::trace;

/// A read is copied to the GPU in steps of this size, so that the copy of one step and the read of
/// the next take place at the same time.
const STEP: u64 = 256 << 10;

/// Carries out a small order at once. Returns `None` for other orders.
pub(super) fn order(
    engine: &'static Engine,
    file: &Arc<File>,
    order: &Order<'_>,
) -> Option<Result<Report>> {
    let [extent] = order.extents else { return None };
    let unsupported =
        extent.memory == 0 || extent.end_checked().is_none() || order.faults.is_some();
    if extent.length > MOST_CACHED_AT_ONCE || unsupported {
        return None;
    }
    let options = merged(engine, file, order.options);
    let memory = match &order.memory {
        Some(known) => known.clone(),
        None => Memory::at(extent.memory).ok()?,
    };
    let (operation, length) = (order.operation, extent.length);
    let ranges = [(extent.offset, length)];
    let at_once = if memory.context.is_none() {
        // The engine would choose one worker for this size of cached data. The calling thread is
        // faster.
        let may_be_cached =
            operation == Operation::Read && length <= MOST_AT_ONCE && !is_divided(&options);
        if !serves_host(&options) || length > MOST_UNSEEN && !may_be_cached {
            return None;
        }
        AtOnce {
            engine,
            operation,
            note: note_for_host(&options),
            memory,
            address: extent.memory,
            length,
            after: None,
            submitted: Instant::now(),
        }
    } else {
        if operation == Operation::Write || !is_quick(file, length, ranges) {
            return None;
        }
        AtOnce::new(file, &options, memory, (extent.memory, length), None)?
    };
    let only_cached = at_once.is_on_host() && length > MOST_UNSEEN;
    let mut is_missed = false;
    let _changing = (operation == Operation::Write).then(Changing::begin);
    let moved = file.must_allow(operation).and_then(|()| {
        // SAFETY: the caller of `run` vouches for the extent.
        let moved = unsafe {
            at_once.carry_out(true, |memory, range, counters| {
                let side = FileSide::new(file, operation, counters);
                let (offset, length) = (extent.offset + range.start, range.end - range.start);
                if !only_cached {
                    return side.move_buffered(memory, offset, length);
                }
                is_missed = !side.read_cached(memory, offset, length);
                if is_missed {
                    return Err(side.ended(offset, length));
                }
                Ok(())
            })
        };
        moved.map_err(|e| e.in_file(file.path()).over(extent.offset, length))
    });
    (!is_missed).then_some(moved)
}

/// Whether the calling thread reads these ranges of a file (offset and length) sooner than workers
/// do. `bytes` is their total.
pub fn is_quick(file: &File, bytes: u64, ranges: impl IntoIterator<Item = (u64, u64)>) -> bool {
    bytes <= MOST_AT_ONCE || bytes <= MOST_CACHED_AT_ONCE && are_cached(file, ranges)
}

/// Whether the page cache has all of these ranges of a file, offset and length.
pub fn are_cached(file: &File, ranges: impl IntoIterator<Item = (u64, u64)>) -> bool {
    let is_cached = |(offset, length): (u64, u64)| {
        file.residency(offset, length)
            .is_some_and(|share| share >= 1.0)
    };
    ranges.into_iter().all(is_cached)
}

/// Whether the options leave a small transfer of host memory to one system call.
fn serves_host(options: &Options) -> bool {
    options.direct != Some(Choice::Yes)
        && options.io != Some(IoMode::Uring)
        && options.durable != Some(true)
        && options.check().is_ok()
}

/// Whether the options say how workers divide a transfer.
fn is_divided(options: &Options) -> bool {
    options.block.is_some() || options.threads.is_some() || options.queue_depth.is_some()
}

/// A transfer of at most [`MOST_CACHED_AT_ONCE`] bytes that the calling thread carries out: between
/// the file and the memory itself if the CPU reaches it. A read into GPU memory goes through a pinned
/// slot, from which the GPU copies.
pub struct AtOnce {
    engine: &'static Engine,
    operation: Operation,
    memory: Memory,
    address: usize,
    length: u64,
    after: Option<Stream>,
    note: Option<&'static str>,
    submitted: Instant,
}

impl AtOnce {
    /// Prepares a read of `length` bytes of a file to `address`, after the work queued on the
    /// stream `after`. `options` are those of the call, completed by the outer levels.
    ///
    /// Returns `None` if the options, the size or the file require another path, or if this thread
    /// may have to take a step of a request before the stream's work is done.
    pub fn new(
        file: &File,
        options: &Options,
        memory: Memory,
        (address, length): (usize, u64),
        after: Option<Stream>,
    ) -> Option<AtOnce> {
        let on_gpu = memory.context.is_some();
        // The stream may wait for a request whose steps only this thread can take.
        if after.is_some() && (!on_gpu || any_stream_waits()) {
            return None;
        }
        let usual = match options.route {
            None | Some(RouteName::Auto) => !on_gpu || !gds::is_peer_to_peer(file),
            Some(RouteName::Staged) => on_gpu,
            Some(_) => !on_gpu,
        };
        let most = if is_divided(options) {
            MOST_AT_ONCE
        } else {
            MOST_CACHED_AT_ONCE
        };
        if length == 0 || length > most || !usual || !serves_host(options) {
            return None;
        }
        Some(AtOnce {
            engine: engine().ok()?,
            operation: Operation::Read,
            note: if on_gpu { None } else { note_for_host(options) },
            memory,
            address,
            length,
            after,
            submitted: Instant::now(),
        })
    }

    /// Prepares a [`copy`](Self::copy) of few bytes to GPU memory, after the work on the stream `after`. Returns
    /// `None` if this thread would wait for that work.
    pub fn into_gpu(
        memory: &Memory,
        (address, length): (usize, u64),
        after: Option<Stream>,
    ) -> Option<AtOnce> {
        let context = memory.context.as_ref()?;
        let is_idle = |stream: Stream| stream.is_idle_in(context).unwrap_or(false);
        if length > MOST_AT_ONCE || any_stream_waits() || !after.is_none_or(is_idle) {
            return None;
        }
        Some(AtOnce {
            engine: engine().ok()?,
            operation: Operation::Read,
            note: None,
            memory: memory.clone(),
            address,
            length,
            after: None,
            submitted: Instant::now(),
        })
    }

    /// Whether the destination is host memory.
    pub fn is_on_host(&self) -> bool {
        self.memory.context.is_none()
    }

    /// Reads. `fill` gets host memory for all bytes of the destination, or with `in_steps` for
    /// consecutive ranges of it.
    ///
    /// # Errors
    /// The first failure, of `fill` or of the GPU. An unknown part of the destination has then
    /// changed.
    ///
    /// # Safety
    /// The destination is valid for the length, and no other code touches it until the call
    /// returns. `fill` initialises the memory that it gets. The stream is live.
    pub unsafe fn read(
        self,
        in_steps: bool,
        fill: impl FnMut(*mut u8, Range<u64>, &Counters) -> Result<()>,
    ) -> Result<Report> {
        // SAFETY: passed on.
        unsafe { self.carry_out(in_steps, fill) }
    }

    /// Copies bytes to the destination.
    ///
    /// # Errors
    /// The failure of the GPU. An unknown part of the destination has then changed.
    ///
    /// # Safety
    /// The destination is valid for the bytes, as many as were prepared for.
    pub unsafe fn copy(self, bytes: &[u8], counters: &Counters) -> Result<()> {
        let mut fill = |to: *mut u8, range: Range<u64>, _: &Counters| {
            let part = &bytes[range.start as usize..range.end as usize];
            // SAFETY: the slot, or the destination, has room for the range.
            unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            Ok(())
        };
        match &self.memory.context {
            // SAFETY: passed on.
            Some(context) => unsafe { self.stage(context, STEP, &mut fill, counters) },
            None => fill(self.address as *mut u8, 0..self.length, counters),
        }
    }

    /// # Safety
    /// As for [`read`](Self::read). For a write, `fill` moves the bytes from the memory to the file.
    unsafe fn carry_out(
        self,
        in_steps: bool,
        mut fill: impl FnMut(*mut u8, Range<u64>, &Counters) -> Result<()>,
    ) -> Result<Report> {
        let counters = Counters::default();
        counters.joined();
        if let Some(note) = self.note {
            counters.note(note);
        }
        let (route, path) = match &self.memory.context {
            None => {
                fill(self.address as *mut u8, 0..self.length, &counters)?;
                (RouteName::Host, Path::HostBuffered)
            }
            Some(context) => {
                let step = if in_steps { STEP } else { self.length };
                // SAFETY: passed on.
                unsafe { self.stage(context, step, &mut fill, &counters)? };
                (RouteName::Staged, Path::StagedBuffered)
            }
        };
        counters.moved(path, self.length);
        trace::request(self.operation, self.submitted, self.length);
        let device = match route {
            RouteName::Staged => self.memory.device,
            _ => -1,
        };
        let elapsed = self.submitted.elapsed().as_nanos() as u64;
        Ok(counters.report(route, device, self.length, elapsed.max(1)))
    }

    /// Reads into a pinned slot, and copies to the GPU. The copies are work of the stream that
    /// precedes the read, or of a queue of the engine's if that stream is idle. Other threads do
    /// not share that queue.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    unsafe fn stage(
        &self,
        context: &Arc<Context>,
        step: u64,
        fill: &mut impl FnMut(*mut u8, Range<u64>, &Counters) -> Result<()>,
        counters: &Counters,
    ) -> Result<()> {
        let own = context.own()?;
        // The slot returns to the ring after the copies are done.
        let slot = self.engine.ring.slot(self.length, Some(own))?;
        let mut in_steps = |copy: &mut dyn FnMut(*const u8, u64, u64) -> Result<()>| {
            for start in (0..self.length).step_by(step as usize) {
                let end = self.length.min(start + step);
                // SAFETY: the slot holds the whole length.
                let from = unsafe { slot.start().add(start as usize) };
                fill(from, start..end, counters)?;
                counters.copy();
                copy(from, self.address as u64 + start, end - start)?;
            }
            Ok(())
        };
        if let Some(stream) = self.after
            && !stream.is_idle_in(context)?
        {
            // SAFETY: passed on; only this call touches the slot.
            return unsafe { stream.copy_to_gpu(context, in_steps) };
        }
        let mut lease = QueueLease::new(own)?;
        let queue = lease.queue()?;
        in_steps(&mut |from, to, bytes| {
            // SAFETY: passed on; dropping `lease` waits for the copies.
            unsafe { queue.copy(Direction::ToGpu, from.cast_mut(), to, bytes) }
        })?;
        lease.queue()?.finish()
    }
}
