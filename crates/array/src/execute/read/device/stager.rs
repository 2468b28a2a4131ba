//! Chunks that a worker decodes on the CPU into a pinned slot, uploads and places on the GPU.

use std::time::Instant;

use penstock_codec::convert::TypeConversion;
use penstock_codec::gpu::PlaceTable;
use penstock_codec::{CodecError, Scratch as CodecScratch};
use penstock_engine::error::{Error, Result};
use penstock_engine::gpu::QueueLease;
use penstock_engine::report::Path;
use penstock_engine::request::Share;

use super::batches::GpuBatches;
use super::gather::{Gathering, Rows};
use super::plans::{DevicePlans, SHUFFLE_AT};
use super::slots::Slots;
use crate::execute::bound::{BoundPlan, Stored};
use crate::execute::buffer::{Buffer, copied};
use crate::execute::device::ALIGNMENT;
use crate::execute::device::placing::{self, Decoded};
use crate::{ChunkJob, FillJob};

pub(super) struct Stager<'a> {
    plans: &'a DevicePlans,
    batches: &'a GpuBatches,
    share: &'a Share<'a>,
    pub slots: Slots,
    pub stored: Buffer,
    codec: CodecScratch,
    /// Bytes used in the current slot.
    used: usize,
    /// Rows of the slot that copies bring to their places.
    copies: Vec<Copies>,
    /// A chunk whose elements the CPU gathers.
    decoded: Buffer,
    /// The number of a plan, and the boxes of its chunks in the slot.
    table: Option<(usize, PlaceTable)>,
}

/// The reason why a job is not in the slot.
pub(super) enum Failure {
    /// The GPU has no memory for it. It was not begun.
    NoMemory(Error),
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Other(error)
    }
}

type Staged<T> = std::result::Result<T, Failure>;

/// Rows in a slot and their places.
struct Copies {
    from: usize,
    rows: Rows,
}

/// How a chunk in the slot goes to its place.
#[derive(Clone, Copy)]
enum Way {
    /// By a copy to this address.
    Copy(u64),
    /// By way of GPU memory of the engine, from which the kernel brings the elements to their places. It
    /// unshuffles this many.
    Kernel { shuffled: u64 },
}

/// The least bytes of a chunk with a copy of its own.
const LEAST_COPY: usize = 1 << 20;
/// A slot is sent once it holds this many bytes.
const FULL: usize = 4 << 20;
/// Room for tables after the chunks of a slot.
const TABLES: usize = 512 << 10;

impl<'a> Stager<'a> {
    pub(super) fn new(
        plans: &'a DevicePlans,
        batches: &'a GpuBatches,
        share: &'a Share<'a>,
    ) -> Stager<'a> {
        Stager {
            plans,
            batches,
            share,
            slots: Slots::new(share.ring()),
            stored: Buffer::default(),
            codec: CodecScratch::default(),
            used: 0,
            copies: Vec::new(),
            decoded: Buffer::default(),
            table: None,
        }
    }

    /// Puts chunks into slots. If the GPU has no memory, `left` becomes the jobs that are not in
    /// slots.
    pub(super) fn chunks(
        &mut self,
        number: usize,
        jobs: &[ChunkJob],
        left: &mut Vec<ChunkJob>,
        lent: &mut QueueLease<'_>,
    ) -> Staged<()> {
        let bound = self.plans.bound(number);
        if let ([job], true) = (jobs, self.plans.kernels.is_some())
            && bound.comes_straight(job, self.share.counters())?
        {
            let staged = self.straight(number, job, lent);
            return staged.inspect_err(|_| left.push(job.clone()));
        }
        let mut rest = Vec::new();
        let mut jobs = jobs;
        if bound.cache.is_some() {
            for (at, job) in jobs.iter().enumerate() {
                let is_placed = self.plans.kernels.is_some() || whole(bound, job).is_some();
                match bound.cached(job).filter(|_| is_placed) {
                    Some(decoded) => {
                        let staged = self.cached(number, job, &decoded, lent);
                        staged.inspect_err(|_| {
                            left.append(&mut rest);
                            left.extend_from_slice(&jobs[at..]);
                        })?;
                    }
                    None => rest.push(job.clone()),
                }
            }
            if rest.is_empty() {
                return Ok(());
            }
            jobs = &rest;
        }
        let start = Instant::now();
        self.slots.take_pinning();
        let mut buffer = std::mem::take(&mut self.stored);
        let outcome = (|| {
            let stored = bound.fetch(jobs, self.share.counters(), &mut buffer)?;
            for (at, job) in jobs.iter().enumerate() {
                let staged = self.chunk(number, job, &stored, lent);
                staged.inspect_err(|_| left.extend_from_slice(&jobs[at..]))?;
            }
            Ok(())
        })();
        self.stored = buffer;
        if let Some(mut rates) = self.batches.rates(number)
            && outcome.is_ok()
        {
            let decoded = jobs.iter().filter(|j| !j.is_plain).map(|j| j.decoded_size);
            let time = start.elapsed().saturating_sub(self.slots.take_pinning());
            rates.cpu_did(decoded.sum(), time);
        }
        outcome
    }

    /// Puts a chunk of the cache into the slot.
    fn cached(
        &mut self,
        number: usize,
        job: &ChunkJob,
        decoded: &[u8],
        lent: &mut QueueLease<'_>,
    ) -> Staged<()> {
        let (at, way) = self.room_for(number, job, decoded.len(), 0, lent)?;
        self.slots.bytes()[at..at + decoded.len()].copy_from_slice(decoded);
        let selected = job.bytes(&self.plans.bound(number).plan);
        self.share.counters().moved(Path::StagedBuffered, selected);
        let in_slot = (at, 0, decoded.len() as u64);
        Ok(self.put(number, job, in_slot, way, lent)?)
    }

    fn chunk(
        &mut self,
        number: usize,
        job: &ChunkJob,
        stored: &Stored<'_>,
        lent: &mut QueueLease<'_>,
    ) -> Staged<()> {
        let bound = self.plans.bound(number);
        let (from, length) = if job.is_plain {
            let (from, to) = bound.needed(job);
            (from, to - from)
        } else {
            bound.refuse_bomb(job)?;
            (0, job.decoded_size)
        };
        let bytes = stored.of(job, bound.needed(job));
        let counters = self.share.counters();
        let count = || {
            let selected = job.bytes(&bound.plan);
            counters.moved(
                stored.path(Path::StagedBuffered, Path::StagedDirect),
                selected,
            );
            bound.count(job, counters);
        };
        if self.plans.kernels.is_none() && whole(bound, job).is_none() {
            count();
            return Ok(self.gather(number, job, bytes, from, length, lent)?);
        }
        // The kernel that places the elements unshuffles them at no cost.
        // Asked once, because the cache must not get shuffled bytes.
        let is_to_cache = bound.is_to_cache(job);
        let shuffled = match &self.plans.kernels {
            Some(_) if !is_to_cache => self.plans.shuffled(number, job),
            _ => 0,
        };
        let (at, way) = self.room_for(number, job, length as usize, shuffled, lent)?;
        count();
        let output = &mut self.slots.bytes()[at..at + length as usize];
        let mask = match shuffled {
            0 => job.mask,
            _ => job.mask | 1 << SHUFFLE_AT,
        };
        decode(bound, job, mask, bytes, output, &mut self.codec)?;
        match is_to_cache.then(|| copied(output)) {
            Some(Ok(copy)) => bound.add_to_cache(job, copy),
            _ => bound.note_read(job),
        }
        Ok(self.put(number, job, (at, from, length), way, lent)?)
    }

    /// Reads a chunk without filters directly into the slot.
    fn straight(&mut self, number: usize, job: &ChunkJob, lent: &mut QueueLease<'_>) -> Staged<()> {
        let bound = self.plans.bound(number);
        let (from, to) = bound.needed(job);
        let length = to - from;
        let (at, way) = self.room_for(number, job, length as usize, 0, lent)?;
        let output = &mut self.slots.bytes()[at..at + length as usize];
        let counters = self.share.counters();
        bound.fetch_into((job, from), counters, output)?;
        let selected = job.bytes(&bound.plan);
        counters.moved(Path::StagedBuffered, selected);
        bound.count(job, counters);
        Ok(self.put(number, job, (at, from, length), way, lent)?)
    }

    /// Sends a chunk in the slot to its place. The slot holds `length` of the chunk's bytes, from `from` on, at
    /// offset `at`.
    fn put(
        &mut self,
        number: usize,
        job: &ChunkJob,
        (at, from, length): (usize, u64, u64),
        way: Way,
        lent: &mut QueueLease<'_>,
    ) -> Result<()> {
        match way {
            Way::Copy(target) => {
                self.copy(at, target, length);
                Ok(())
            }
            Way::Kernel { shuffled } => {
                let address = self.slots.scratch(lent)? + at as u64;
                let decoded = Decoded {
                    address,
                    length,
                    from,
                    shuffled,
                };
                self.scatter(number, job, &decoded, lent)
            }
        }
    }

    /// Adds a copy of bytes in the slot to their place. Bytes that follow those of the last copy in both go with
    /// them, since each copy costs as much as some 100 KiB (docs/decisions/0028).
    fn copy(&mut self, from: usize, target: u64, width: u64) {
        if let Some(Copies { from: first, rows }) = self.copies.last_mut()
            && rows.rows == 1
            && *first as u64 + rows.width == from as u64
            && rows.target + rows.width == target
        {
            rows.width += width;
            return;
        }
        let rows = Rows {
            target,
            width,
            rows: 1,
            pitch: 0,
        };
        self.copies.push(Copies { from, rows });
    }

    /// Gathers the selected elements of a chunk contiguously into the slot, for copies to place.
    fn gather(
        &mut self,
        number: usize,
        job: &ChunkJob,
        bytes: &[u8],
        from: u64,
        length: u64,
        lent: &mut QueueLease<'_>,
    ) -> Result<()> {
        let bound = self.plans.bound(number);
        let element = bound.plan.element();
        let mut decoded = std::mem::take(&mut self.decoded);
        let outcome = (|| {
            let chunk = decoded.room(length as usize)?;
            decode(bound, job, job.mask, bytes, chunk, &mut self.codec)?;
            for mut strided in job.boxes(&bound.plan) {
                strided.chunk -= from;
                let gathering = Gathering::new(element, &strided);
                let bytes = gathering.bytes() as usize;
                let mut at = self.room_for_copies(number, bytes, lent)?;
                let slot = &mut self.slots.bytes()[at..at + bytes];
                gathering.gather(&bound.conversion, chunk, slot);
                for rows in gathering.copies() {
                    let next = at + (rows.width * rows.rows) as usize;
                    self.copies.push(Copies { from: at, rows });
                    at = next;
                }
            }
            Ok(())
        })();
        self.decoded = decoded;
        outcome
    }

    /// Adds the boxes of a chunk to the table; launches it whenever it is full.
    fn scatter(
        &mut self,
        number: usize,
        job: &ChunkJob,
        decoded: &Decoded,
        lent: &mut QueueLease<'_>,
    ) -> Result<()> {
        let bound = self.plans.bound(number);
        let (element, target) = (bound.plan.element(), self.plans.target);
        for strided in job.boxes(&bound.plan) {
            let table = self.table(number, bound)?;
            placing::push(table, &element, &strided, decoded, target)?;
            self.make_room_in_table(lent)?;
        }
        Ok(())
    }

    /// Fills elements.
    pub(super) fn fill(
        &mut self,
        number: usize,
        job: &FillJob,
        lent: &mut QueueLease<'_>,
    ) -> Staged<()> {
        let bound = self.plans.bound(number);
        let (element, target) = (bound.plan.element(), self.plans.target);
        let Some(value) = bound.plan.fill() else {
            return Ok(());
        };
        let counters = self.share.counters();
        let count = || counters.moved(Path::StagedBuffered, job.bytes(&bound.plan));
        if self.plans.kernels.is_none() {
            count();
            return Ok(self.fill_by_copies(number, job, value, lent)?);
        }
        let at = self.room_with_scratch(number, value.len(), lent)?;
        count();
        self.slots.bytes()[at..at + value.len()].copy_from_slice(value);
        let address = self.slots.scratch(lent)? + at as u64;
        for strided in job.boxes(&bound.plan) {
            let table = self.table(number, bound)?;
            placing::push_fill(table, &element, &strided, address, target)?;
            self.make_room_in_table(lent)?;
        }
        Ok(())
    }

    fn fill_by_copies(
        &mut self,
        number: usize,
        job: &FillJob,
        value: &[u8],
        lent: &mut QueueLease<'_>,
    ) -> Result<()> {
        /// Largest number of elements in the pattern of a copy.
        const MOST: u64 = 64 << 10;
        const MOST_COPIES: usize = 1 << 16;
        let bound = self.plans.bound(number);
        let element = bound.plan.element();
        let part = &value[element.offset as usize..(element.offset + element.length) as usize];
        for strided in job.boxes(&bound.plan) {
            let most = strided.run.min((MOST / element.target).max(1));
            let mut pattern = usize::MAX;
            for run in strided.runs() {
                let mut done = 0;
                while done < run.elements {
                    let elements = most.min(run.elements - done);
                    if self.copies.len() >= MOST_COPIES {
                        self.flush(lent)?;
                    }
                    // A sent slot no longer holds the pattern.
                    if pattern == usize::MAX || self.used == 0 {
                        let bytes = (most * element.target) as usize;
                        pattern = self.room_for_copies(number, bytes, lent)?;
                        let slot = &mut self.slots.bytes()[pattern..];
                        for to in slot
                            .chunks_exact_mut(element.target as usize)
                            .take(most as usize)
                        {
                            bound.conversion.run(part, to);
                        }
                    }
                    let rows = Rows {
                        target: run.memory + done * element.target,
                        width: elements * element.target,
                        rows: 1,
                        pitch: 0,
                    };
                    self.copies.push(Copies {
                        from: pattern,
                        rows,
                    });
                    done += elements;
                }
            }
        }
        Ok(())
    }

    fn table(&mut self, number: usize, bound: &BoundPlan) -> Result<&mut PlaceTable> {
        let made = match self.table.take() {
            Some(made) => made,
            None => {
                let (element, shuffled) =
                    (bound.plan.element(), self.plans.shuffled_element(number));
                (
                    number,
                    placing::table(bound.conversion, &element, shuffled)?,
                )
            }
        };
        Ok(&mut self.table.insert(made).1)
    }

    /// Returns the offset of room for the bytes of a job, and how [`put`](Self::put) sends them to their place.
    ///
    /// A small chunk that goes there as a whole takes the kernel, with all others of its slot, because a copy into
    /// memory of the program's context takes the GPU some microseconds longer (docs/decisions/0028); but a copy
    /// if there is no GPU memory for the kernel.
    fn room_for(
        &mut self,
        number: usize,
        job: &ChunkJob,
        bytes: usize,
        shuffled: u64,
        lent: &mut QueueLease<'_>,
    ) -> Staged<(usize, Way)> {
        let target = whole(self.plans.bound(number), job).filter(|_| shuffled == 0);
        let is_small = bytes < LEAST_COPY && self.plans.kernels.is_some();
        let Some(target) = target else {
            let at = self.room_with_scratch(number, bytes, lent)?;
            return Ok((at, Way::Kernel { shuffled }));
        };
        if is_small {
            match self.room_with_scratch(number, bytes, lent) {
                Err(Failure::NoMemory(_)) => {}
                room => return Ok((room?, Way::Kernel { shuffled })),
            }
        }
        let at = self.room_for_copies(number, bytes, lent)?;
        Ok((at, Way::Copy(target)))
    }

    /// Returns the offset of room for this many bytes in a slot. Sends the contents of the slot
    /// first if they leave no room or belong to another plan.
    fn room_for_copies(
        &mut self,
        number: usize,
        bytes: usize,
        lent: &mut QueueLease<'_>,
    ) -> Result<usize> {
        self.make_room(number, bytes, lent)?;
        if self.used == 0 {
            self.slots.ready(slot_size(bytes), lent)?;
        }
        Ok(self.take_room(bytes))
    }

    /// As [`room_for_copies`](Self::room_for_copies), in a slot with GPU memory.
    fn room_with_scratch(
        &mut self,
        number: usize,
        bytes: usize,
        lent: &mut QueueLease<'_>,
    ) -> Staged<usize> {
        self.make_room(number, bytes, lent)?;
        if self.used > 0 && self.slots.take_scratch(lent)?.is_some() {
            // Another slot may have some.
            self.flush(lent)?;
        }
        if self.used == 0
            && let Some(error) = self.slots.ready_with_scratch(slot_size(bytes), lent)?
        {
            return Err(Failure::NoMemory(error));
        }
        Ok(self.take_room(bytes))
    }

    fn make_room(&mut self, number: usize, bytes: usize, lent: &mut QueueLease<'_>) -> Result<()> {
        let is_other = self.table.as_ref().is_some_and(|(n, _)| *n != number);
        let is_full = self.used > 0 && self.used + bytes + TABLES > FULL;
        if is_other || is_full {
            self.flush(lent)
        } else {
            Ok(())
        }
    }

    fn take_room(&mut self, bytes: usize) -> usize {
        let at = self.used;
        self.used = (at + bytes).next_multiple_of(ALIGNMENT);
        at
    }

    /// Launches the table with the chunks so far if it has outgrown the room that slots reserve for
    /// it.
    fn make_room_in_table(&mut self, lent: &mut QueueLease<'_>) -> Result<()> {
        const LARGEST_BOX: usize = 2048;
        let size = self.table.as_ref().map_or(0, |(_, table)| table.size());
        if size + LARGEST_BOX <= TABLES {
            return Ok(());
        }
        self.launch(lent)?;
        // The slot stays in use, so its table must have been copied.
        lent.queue()?.finish()
    }

    /// Sends the contents of the slot.
    pub(super) fn flush(&mut self, lent: &mut QueueLease<'_>) -> Result<()> {
        if self.used == 0 {
            return Ok(());
        }
        self.launch(lent)?;
        let copies = std::mem::take(&mut self.copies);
        let target = self.plans.target.start;
        let rows = copies.into_iter().map(|copy| {
            self.share.counters().copy();
            (copy.from, copy.rows)
        });
        // SAFETY: the places lie inside the caller's memory, as the plan has checked.
        unsafe { self.slots.upload_rows(rows, target, lent)? };
        self.slots.sent(lent)?;
        self.used = 0;
        Ok(())
    }

    /// Uploads the slot's chunks and the table, and queues the kernel.
    fn launch(&mut self, lent: &mut QueueLease<'_>) -> Result<()> {
        let Some((_, table)) = self.table.take().filter(|(_, table)| !table.is_empty()) else {
            return Ok(());
        };
        let at = self.used.next_multiple_of(ALIGNMENT);
        let size = table.size();
        table.write(&mut self.slots.bytes()[at..at + size]);
        let scratch = self.slots.scratch(lent)?;
        self.share.counters().copy();
        // SAFETY: slot and scratch have the same size; the kernel accesses the scratch and the
        // caller's memory, which both stay valid until the queue has finished.
        unsafe {
            self.slots.upload(0, at + size, scratch, lent)?;
            let stream = lent.queue()?.raw_stream();
            if let Some(kernels) = &self.plans.kernels {
                kernels
                    .place(&table, scratch + at as u64, stream)
                    .map_err(|e| placing::gpu_error(&self.plans.context, &e))?;
            }
        }
        Ok(())
    }

    /// Discards unsent contents and waits for all that was sent.
    pub(super) fn drain(&mut self, lent: &mut QueueLease<'_>) -> Result<()> {
        self.used = 0;
        self.copies.clear();
        self.table = None;
        self.slots.drain(lent)
    }
}

/// Returns the size of a slot for this many bytes and the tables after them.
fn slot_size(bytes: usize) -> usize {
    (bytes.next_multiple_of(ALIGNMENT) + TABLES).max(FULL)
}

/// Returns the place of a chunk that goes there contiguously and unchanged.
fn whole(bound: &BoundPlan, job: &ChunkJob) -> Option<u64> {
    match bound.conversion {
        TypeConversion::Copy => job.whole(&bound.plan),
        _ => None,
    }
}

/// Decodes a chunk, undoing the filters that `mask` does not skip.
fn decode(
    bound: &BoundPlan,
    job: &ChunkJob,
    mask: u32,
    stored: &[u8],
    output: &mut [u8],
    scratch: &mut CodecScratch,
) -> Result<()> {
    if job.is_plain {
        output.copy_from_slice(stored);
        return Ok(());
    }
    let failed = |error: CodecError| bound.undecodable(job, &error);
    let pipeline = &bound.plan.pipeline();
    pipeline
        .decode(mask, stored, output, scratch)
        .map_err(failed)
}
