//! Loads a batch: all workers copy stored bytes to GPU memory and collect the tables for decoding
//! and placing them.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Instant;

use penstock_codec::filters;
use penstock_codec::gpu::framing::{self, Piece};
use penstock_codec::gpu::nvcomp;
use penstock_engine::error::{Kind, Result};
use penstock_engine::gpu::QueueLease;
use penstock_engine::request::Share;

use super::batch::{ALLOCATED, Entry, Found, GpuBatch};
use super::batches::{GpuBatches, Launched};
use super::plans::DevicePlans;
use super::results::Results;
use super::stager::Stager;
use crate::ChunkJob;
use crate::execute::buffer::Buffer;
use crate::execute::device::placing::{self, Decoded};

pub(super) struct Loader<'a, 'b> {
    plans: &'a DevicePlans,
    batches: &'a GpuBatches,
    share: &'a Share<'a>,
    stager: &'b mut Stager<'a>,
    found: Found,
    /// Entries of the chunks in the slot, with their input offsets in it.
    in_slot: Vec<Entry>,
    used: usize,
}

/// Stored bytes that a worker reads at a time.
const READ: u64 = 256 << 10;
const SLOT: usize = 4 << 20;
/// Mark on a worker's queue after what it has loaded, beside the marks of its two slots.
const LOADED: usize = 2;
/// Bytes of the checksum (Adler-32) at the end of a deflate stream.
const ADLER: u64 = 4;

impl<'a, 'b> Loader<'a, 'b> {
    pub(super) fn new(
        plans: &'a DevicePlans,
        batches: &'a GpuBatches,
        share: &'a Share<'a>,
        stager: &'b mut Stager<'a>,
    ) -> Self {
        Loader {
            plans,
            batches,
            share,
            stager,
            found: Found::default(),
            in_slot: Vec::new(),
            used: 0,
        }
    }

    /// Loads jobs until all are taken. The worker that loads the last ones launches the batch.
    pub(super) fn load(mut self, batch: &Arc<GpuBatch>, lent: &mut QueueLease<'_>) -> Result<()> {
        lent.queue()?.follow(&batch.queue(), ALLOCATED)?;
        let mut buffer = std::mem::take(&mut self.stager.stored);
        let mut done = 0;
        let start = Instant::now();
        let portion = self.batches.portion(batch.jobs.len());
        while !self.share.stopping() {
            let first = batch.next.fetch_add(portion, Relaxed);
            let last = (first + portion).min(batch.jobs.len());
            if first >= last {
                break;
            }
            self.portion(batch, first..last, &mut buffer, lent)?;
            done += last - first;
        }
        self.stager.stored = buffer;
        if done == 0 {
            return Ok(());
        }
        self.send(batch, lent)?;
        if let Some(mut rates) = self.batches.rates(batch.plan) {
            let decoded = done as u64 * batch.chunk();
            rates.loaded(decoded, start.elapsed());
        }
        let mut found = batch.found();
        found.entries.append(&mut self.found.entries);
        found.again.append(&mut self.found.again);
        found.places.append(&mut self.found.places);
        found.elements += self.found.elements;
        drop(found);
        let queue = lent.queue()?;
        queue.mark(LOADED)?;
        batch.queue().follow(queue, LOADED)?;
        if batch.loaded.fetch_add(done, SeqCst) + done < batch.jobs.len() {
            return Ok(());
        }
        let results = match Results::launch(
            self.plans,
            batch,
            self.batches.nvcomp,
            &mut self.stager.slots,
            lent,
        ) {
            // The CPU needs less GPU memory.
            Err(error) if error.kind() == Kind::Memory => Results::none(batch)?,
            launched => launched?,
        };
        self.batches.launched(Launched::new(batch, results));
        Ok(())
    }

    fn portion(
        &mut self,
        batch: &GpuBatch,
        jobs: std::ops::Range<usize>,
        buffer: &mut Buffer,
        lent: &mut QueueLease<'_>,
    ) -> Result<()> {
        let bound = self.plans.bound(batch.plan);
        let mut first = jobs.start;
        while first < jobs.end {
            let mut last = first + 1;
            let end = |at: usize| batch.jobs[at].address + batch.jobs[at].stored_size;
            while last < jobs.end
                && batch.jobs[last].address >= end(last - 1)
                && end(last) - batch.jobs[first].address <= READ
            {
                last += 1;
            }
            let stored = bound.fetch(&batch.jobs[first..last], self.share.counters(), buffer)?;
            for at in first..last {
                let job = &batch.jobs[at];
                self.chunk(batch, at, stored.of(job, (0, job.stored_size)), lent)?;
            }
            first = last;
        }
        Ok(())
    }

    /// Puts one chunk into the slot, or on the list of chunks for the CPU.
    fn chunk(
        &mut self,
        batch: &GpuBatch,
        at: usize,
        stored: &[u8],
        lent: &mut QueueLease<'_>,
    ) -> Result<()> {
        let job = &batch.jobs[at];
        let Some((stored, pieces, has_checksum)) = self.pieces(batch, job, stored) else {
            self.found.again.push(at);
            return Ok(());
        };
        // The first piece begins at an aligned address; the others are moved to one.
        let room: usize = pieces
            .iter()
            .map(|piece| (piece.length + ADLER as usize).next_multiple_of(nvcomp::ALIGNMENT))
            .sum();
        if self.used + room > SLOT.max(room) || self.used == 0 {
            self.send(batch, lent)?;
            self.stager.slots.ready(room.max(SLOT), lent)?;
        }
        let output = batch.outputs[at];
        if !output.in_place {
            self.place(batch, at)?;
        }
        self.found.elements += job.elements;
        for (index, piece) in pieces.iter().enumerate() {
            let checksum = (index == 0 && has_checksum).then_some(ADLER);
            let length = piece.length + checksum.unwrap_or(0) as usize;
            let slot = &mut self.stager.slots.bytes()[self.used..self.used + length];
            slot.copy_from_slice(&stored[piece.offset..piece.offset + length]);
            self.in_slot.push(Entry {
                job: at,
                input: self.used as u64,
                input_size: piece.length as u64,
                output: output.address + piece.decoded_offset as u64,
                room: piece.decoded_length as u64,
                checksum: checksum.map(|_| (self.used + piece.length) as u64),
            });
            self.used = (self.used + length).next_multiple_of(nvcomp::ALIGNMENT);
        }
        Ok(())
    }

    /// Adds the boxes of a chunk to the tables for placing it after decoding.
    fn place(&mut self, batch: &GpuBatch, at: usize) -> Result<()> {
        let (plans, job) = (self.plans, &batch.jobs[at]);
        let bound = plans.bound(batch.plan);
        let element = bound.plan.element();
        let decoded = Decoded {
            address: batch.outputs[at].address,
            length: job.decoded_size,
            from: 0,
            shuffled: plans.shuffled(batch.plan, job),
        };
        let table = match self.found.places.last_mut() {
            Some(table) => table,
            None => {
                let made = placing::table(
                    bound.conversion,
                    &element,
                    plans.shuffled_element(batch.plan),
                )?;
                self.found.places.push(made);
                &mut self.found.places[0]
            }
        };
        for strided in job.boxes(&bound.plan) {
            placing::push(table, &element, &strided, &decoded, plans.target)?;
        }
        Ok(())
    }

    /// Returns the pieces of a chunk that the GPU decodes; `None` if the CPU must decode it.
    fn pieces<'s>(
        &self,
        batch: &GpuBatch,
        job: &ChunkJob,
        stored: &'s [u8],
    ) -> Option<(&'s [u8], Vec<Piece>, bool)> {
        let bound = self.plans.bound(batch.plan);
        let stored = match batch.filters.fletcher {
            Some(at) if batch.filters.has_fletcher(job) => {
                let filter = bound.plan.pipeline().filters.get(at)?;
                let codec = filters::codec(filter.id)?;
                codec.decoded_within(&filter.values, stored)?.ok()?
            }
            _ => stored,
        };
        let mut pieces = Vec::new();
        let decoded = usize::try_from(job.decoded_size).ok()?;
        let checksum = framing::split(batch.filters.method, stored, decoded, &mut pieces).ok()?;
        // Blocks that are stored raw occur in chunks that hardly shrink.
        (!pieces.iter().any(|piece| piece.raw)).then_some((stored, pieces, checksum.is_some()))
    }

    /// Uploads the contents of the slot.
    fn send(&mut self, batch: &GpuBatch, lent: &mut QueueLease<'_>) -> Result<()> {
        if self.used == 0 {
            return Ok(());
        }
        let Some(start) = batch.take(self.used as u64) else {
            // Many small pieces, each aligned, may take more room than was estimated.
            let mut jobs: Vec<usize> = self.in_slot.drain(..).map(|entry| entry.job).collect();
            jobs.dedup();
            let elements = jobs.iter().map(|job| batch.jobs[*job].elements);
            self.found.elements -= elements.sum::<u64>();
            self.found.again.append(&mut jobs);
            self.used = 0;
            return Ok(());
        };
        self.share.counters().copy();
        // SAFETY: the memory was just taken for these bytes, and lives until the batch is concluded.
        unsafe { self.stager.slots.upload(0, self.used, start, lent)? };
        self.stager.slots.sent(lent)?;
        self.used = 0;
        for entry in self.in_slot.drain(..) {
            self.found.entries.push(Entry {
                input: start + entry.input,
                checksum: entry.checksum.map(|at| start + at),
                ..entry
            });
        }
        Ok(())
    }
}
