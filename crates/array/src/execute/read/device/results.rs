//! Decodes and places a loaded batch on the GPU, and evaluates the results.

use penstock_codec::gpu::nvcomp::Nvcomp;
use penstock_codec::gpu::{Checksum, ChecksumTable, InflateTable, Kernels, PlaceTable};
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::gpu::{CopyQueue, Direction, OwnContext, QueueLease};
use penstock_engine::report::{Counters, Path};

use super::batch::{DECODED, Entry, Found, GpuBatch};
use super::decoding::Decoding;
use super::in_place::InPlace;
use super::plans::DevicePlans;
use super::slots::Slots;
use crate::ChunkJob;
use crate::execute::device::Parts;
use crate::execute::device::placing;
use crate::execute::device::scratch::Scratch;

/// The launched work of a batch: its tables and the memory for its results.
pub(super) struct Results {
    decoding: Decoding,
    scratch: Vec<Scratch>,
    entries: Vec<Entry>,
    again: Vec<usize>,
    elements: u64,
    results_at: u64,
    verdicts_at: u64,
    /// Numbers of the entries with a checksum, in the order of the checksum results.
    checked: Vec<usize>,
}

/// The tables of a launch, and its memory on the GPU. Offsets count from the start of `memory`.
struct Upload {
    /// For the decoder's own use.
    temp: Scratch,
    /// Begins with the tables, that of the decoder first. What the GPU writes follows.
    memory: Scratch,
    /// Bytes of all tables.
    bytes: usize,
    checksums: ChecksumTable,
    checksums_at: u64,
    /// Each with its offset.
    places: Vec<(PlaceTable, u64)>,
    /// Offset of the memory in which checksums are computed.
    work_at: u64,
}

impl Results {
    /// Queues all work that turns the loaded bytes of a batch into elements in their places:
    ///
    /// 1. Memory of the GPU is allocated for tables and results.
    /// 2. The tables are written to a slot, and copied from it.
    /// 3. The GPU decodes the pieces, computes the checksums, and places the elements.
    pub(super) fn launch(
        plans: &DevicePlans,
        batch: &GpuBatch,
        nvcomp: Option<Nvcomp>,
        slots: &mut Slots,
        lent: &mut QueueLease<'_>,
    ) -> Result<Results> {
        let Found {
            entries,
            again,
            places,
            elements,
        } = std::mem::take(&mut *batch.found());
        let mut checksums = ChecksumTable::new(Checksum::Adler32);
        let mut checked = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            if let Some(stored) = entry.checksum {
                checksums.push(entry.output, entry.room, Some(stored));
                checked.push(at);
            }
        }
        let decoding = Decoding::new(batch.filters.method, nvcomp, &entries);
        let (Some(decoding), Some(kernels)) = (decoding, &plans.kernels) else {
            let cause = "the GPU has no decoder for a batch";
            return Err(Error::new(Kind::Internal, cause));
        };
        let mut results = Results {
            decoding,
            scratch: Vec::with_capacity(3),
            entries,
            again,
            elements,
            results_at: 0,
            verdicts_at: 0,
            checked,
        };
        let allocated = results.allocate(plans, batch, checksums, places);
        let queued = allocated.and_then(|upload| {
            // Called with the batch's queue unlocked: a worker that waits for that lock may hold the
            // slots that this worker waits for.
            slots.ready(upload.bytes.max(1), lent)?;
            let mut queue = batch.queue();
            let queued = results.queue(&upload, &plans.context, kernels, slots, &mut queue);
            queued.inspect_err(|_| {
                // Queued work must end before its memory is released.
                let _ = queue.finish();
            })
        });
        queued.inspect_err(|_| results.release(batch))?;
        Ok(results)
    }

    /// Allocates the memory of a launch, and adds the tables that need temporary memory.
    fn allocate(
        &mut self,
        plans: &DevicePlans,
        batch: &GpuBatch,
        checksums: ChecksumTable,
        mut places: Vec<PlaceTable>,
    ) -> Result<Upload> {
        let entries = &self.entries;
        let mut queue = batch.queue();
        let stream = queue.raw_stream();
        let mut take = |bytes| {
            let taken = Scratch::new(&mut queue, bytes)?;
            self.scratch.push(taken);
            Ok(taken)
        };
        // SAFETY: the stream belongs to the context that is current on this worker.
        let temp = take(unsafe { self.decoding.temp_bytes(entries, stream)? })?;
        let in_place = InPlace::new(plans, batch, entries);
        let through = take(in_place.through())?;
        in_place.tables(through.address, &mut places)?;

        let mut parts = Parts::default();
        parts.take(self.decoding.size(entries) as u64);
        let checksums_at = parts.take(checksums.size() as u64);
        let with_offset = |table: PlaceTable| {
            let offset = parts.take(table.size() as u64);
            (table, offset)
        };
        let places = places.into_iter().map(with_offset).collect();
        let bytes = parts.end as usize;
        let results_at = parts.take(self.decoding.results_size(entries) as u64);
        let work_at = parts.take(checksums.work_size() as u64);
        let memory = take(parts.end)?;
        self.results_at = memory.address + results_at;
        self.verdicts_at = memory.address + work_at + checksums.verdicts_offset() as u64;
        Ok(Upload {
            temp,
            memory,
            bytes,
            checksums,
            checksums_at,
            places,
            work_at,
        })
    }

    /// Writes the tables to the slot, and queues their copy and the work that they describe. Waits
    /// until they are copied.
    fn queue(
        &self,
        upload: &Upload,
        context: &OwnContext,
        kernels: &Kernels,
        slots: &mut Slots,
        queue: &mut CopyQueue,
    ) -> Result<()> {
        let start = upload.memory.address;
        let slot = slots.bytes();
        self.decoding.write(&self.entries, slot);
        let checksums = &upload.checksums;
        checksums.write(&mut slot[upload.checksums_at as usize..]);
        for (table, offset) in &upload.places {
            table.write(&mut slot[*offset as usize..]);
        }
        let (slot, bytes) = (slot.as_mut_ptr(), upload.bytes as u64);
        // SAFETY: the slot is untouched until the batch's queue has executed the copy, which is
        // waited for below; the memory has room for it.
        unsafe { queue.copy(Direction::ToGpu, slot, start, bytes)? };
        queue.mark(DECODED)?;
        let stream = queue.raw_stream();
        let failed = |e| placing::gpu_error(context, &e);
        // SAFETY: all memory in the tables belongs to the batch, which lives until it is concluded,
        // or to the caller, who guarantees its validity; the context is current on this worker.
        unsafe {
            let (parts, way) = ((start, self.results_at), (context, stream));
            self.decoding
                .queue(&self.entries, parts, &upload.temp, kernels, way)?;
            let (at, work) = (start + upload.checksums_at, start + upload.work_at);
            kernels
                .checksum(checksums, at, work, stream)
                .map_err(failed)?;
            for (table, offset) in &upload.places {
                kernels
                    .place(table, start + offset, stream)
                    .map_err(failed)?;
            }
        }
        // The slot may be reused once the tables have been copied.
        queue.wait(DECODED)?;
        queue.mark(DECODED)
    }

    /// Returns the results of a batch that is left to the CPU.
    pub(super) fn none(batch: &GpuBatch) -> Result<Results> {
        batch.queue().mark(DECODED)?;
        Ok(Results {
            decoding: Decoding::Inflate(InflateTable::new()),
            scratch: Vec::new(),
            entries: Vec::new(),
            again: (0..batch.jobs.len()).collect(),
            elements: 0,
            results_at: 0,
            verdicts_at: 0,
            checked: Vec::new(),
        })
    }

    /// Returns the jobs that the CPU must decode once the GPU has finished: those that the GPU
    /// cannot decode, and those that failed decoding or their checksum.
    pub(super) fn again(&self, batch: &GpuBatch, counters: &Counters) -> Result<Vec<ChunkJob>> {
        // A job without any decoded piece has failed, too.
        let mut is_bad = vec![true; batch.jobs.len()];
        for entry in &self.entries {
            is_bad[entry.job] = false;
        }
        for at in &self.again {
            is_bad[*at] = true;
        }
        let mut results = vec![0u8; self.decoding.results_size(&self.entries)];
        let mut verdicts = vec![0u8; self.checked.len() * ChecksumTable::VERDICT];
        let mut queue = batch.queue();
        let mut fetch = |to: &mut [u8], from: u64| match to.len() {
            0 => Ok(()),
            bytes => {
                // SAFETY: both buffers have the size of what the GPU has written, and the copies
                // are waited for below.
                unsafe { queue.copy(Direction::FromGpu, to.as_mut_ptr(), from, bytes as u64) }
            }
        };
        let fetched = fetch(&mut results, self.results_at)
            .and_then(|()| fetch(&mut verdicts, self.verdicts_at));
        // Waits also after an error: the queued copies write to buffers that are freed here.
        let finished = queue.finish();
        drop(queue);
        fetched.and(finished)?;
        let outcomes = self.decoding.outcomes(&self.entries, &results);
        for (entry, is_decoded) in self.entries.iter().zip(outcomes) {
            is_bad[entry.job] |= !is_decoded;
        }
        for (at, verdict) in self.checked.iter().zip(ChecksumTable::verdicts(&verdicts)) {
            is_bad[self.entries[*at].job] |= !verdict.sound;
        }
        let mut again = Vec::new();
        for (job, is_bad) in batch.jobs.iter().zip(is_bad) {
            if is_bad {
                again.push(job.clone());
            } else {
                counters.decoded_gpu(job.decoded_size);
                counters.chunks(1, job.stored_size);
            }
        }
        Ok(again)
    }

    /// Releases the memory once all queued work has finished.
    pub(super) fn release(&self, batch: &GpuBatch) {
        let mut queue = batch.queue();
        for scratch in &self.scratch {
            scratch.release(&mut queue);
        }
    }

    /// Counts the bytes that a batch has moved.
    pub(super) fn count(
        &self,
        batch: &GpuBatch,
        again: &[ChunkJob],
        plans: &DevicePlans,
        counters: &Counters,
    ) {
        let plan = &plans.bound(batch.plan).plan;
        let missing: u64 = again.iter().map(|job| job.elements).sum();
        // Jobs that the GPU cannot decode were never counted.
        let never = self.again.iter().map(|at| batch.jobs[*at].elements);
        let elements = (self.elements + never.sum::<u64>()).saturating_sub(missing);
        counters.moved(Path::StagedBuffered, elements * plan.memory_element());
    }
}
