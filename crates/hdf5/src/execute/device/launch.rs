//! A loaded batch decoded and placed by the GPU, and what came of it.

use penstock_codec::gpu::nvcomp::{self, Batch as NvBatch};
use penstock_codec::gpu::{Checksum, ChecksumTable};
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::gpu::{CopyQueue, Direction, Lent};
use penstock_engine::report::{Counters, Path};

use super::DeviceRead;
use super::batch::{Batch, DECODED, Entry};
use super::placing::{self, Decoded};
use super::scratch::Scratch;
use super::slots::{ALIGNMENT, Slots};
use crate::plan::ChunkJob;

/// Where the GPU says how the decoding went.
pub struct Results {
    memory: Scratch,
    temp: Scratch,
    entries: Vec<Entry>,
    again: Vec<usize>,
    sizes_at: u64,
    statuses_at: u64,
    verdicts_at: u64,
    /// Entries of the verdicts.
    checked: Vec<usize>,
}

/// What one array of nvCOMP's says of an entry.
type Column = fn(&Entry) -> u64;

/// Parts of one piece of memory, one behind the other.
struct Parts {
    end: u64,
}

impl Parts {
    fn take(&mut self, bytes: usize) -> u64 {
        let at = self.end;
        self.end += (bytes as u64).next_multiple_of(ALIGNMENT as u64);
        at
    }
}

impl Results {
    /// Queues all that turns the loaded bytes of a batch into elements in their places.
    pub fn launch(
        duty: &DeviceRead,
        batch: &Batch,
        slots: &mut Slots,
        lent: &mut Lent<'_>,
    ) -> Result<Results> {
        let (entries, again) = {
            let mut found = batch.found();
            (
                std::mem::take(&mut found.entries),
                std::mem::take(&mut found.again),
            )
        };
        let count = entries.len();
        let mut checksums = ChecksumTable::new(Checksum::Adler32);
        let mut checked = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            if let Some(stored) = entry.checksum {
                checksums.push(entry.output, entry.room, Some(stored));
                checked.push(at);
            }
        }
        let reading = &duty.readings[batch.reading];
        let item = reading.plan.item();
        let mut place = placing::table(
            reading.change,
            &item,
            batch.filters.shuffled_element().max(1),
        )?;
        let mut placed = vec![false; batch.jobs.len()];
        for entry in &entries {
            if std::mem::replace(&mut placed[entry.job], true) {
                continue;
            }
            let job = &batch.jobs[entry.job];
            let decoded = Decoded {
                address: batch.output(entry.job),
                length: job.decoded_size,
                from: 0,
                shuffled: batch.filters.shuffled(job),
            };
            for patch in job.patches(&reading.plan) {
                placing::push(&mut place, &item, &patch, &decoded, duty.target)?;
            }
        }

        let mut parts = Parts { end: 0 };
        let column = count * size_of::<u64>();
        let [inputs, input_sizes, outputs, rooms] = [(); 4].map(|()| parts.take(column));
        let checksum_at = parts.take(checksums.size());
        let place_at = parts.take(place.size());
        let uploaded = parts.end as usize;
        let sizes_at = parts.take(column);
        let statuses_at = parts.take(count * size_of::<i32>());
        let work_at = parts.take(checksums.work_size());

        let (Some(library), Some(kernels)) = (&duty.batches.nvcomp, &duty.kernels) else {
            return Err(Error::new(
                Kind::Internal,
                "a batch was made without nvCOMP or kernels",
            ));
        };
        let method = batch.filters.method;
        let most = entries.iter().map(|e| e.room).max().unwrap_or(0) as usize;
        let total = entries.iter().map(|e| e.room).sum::<u64>() as usize;
        let mut queue = batch.queue();
        let stream = queue.lend_stream();
        // SAFETY: the stream is of the context that is current on this worker.
        let temp = unsafe { library.decode_temp_bytes(method, count.max(1), most, total, stream) };
        let temp = temp.map_err(placing::gpu_failed)?;
        let memory = Scratch::new(&mut queue, parts.end)?;
        let temp = match Scratch::new(&mut queue, temp as u64) {
            Ok(temp) => temp,
            Err(error) => {
                memory.release(&mut queue);
                return Err(error);
            }
        };
        let results = Results {
            memory,
            temp,
            entries,
            again,
            sizes_at: memory.address + sizes_at,
            statuses_at: memory.address + statuses_at,
            verdicts_at: memory.address + work_at + checksums.verdicts_offset() as u64,
            checked,
        };

        let place_all = |queue: &mut CopyQueue, slots: &mut Slots, lent: &mut Lent<'_>| {
            slots.ready(uploaded.max(1), lent)?;
            let table = slots.bytes();
            let columns: [(u64, Column); 4] = [
                (inputs, |e| e.input),
                (input_sizes, |e| e.input_size),
                (outputs, |e| e.output),
                (rooms, |e| e.room),
            ];
            for (at, value) in columns {
                let column = table[at as usize..].chunks_exact_mut(size_of::<u64>());
                for (to, entry) in column.zip(&results.entries) {
                    to.copy_from_slice(&value(entry).to_ne_bytes());
                }
            }
            checksums.write(&mut table[checksum_at as usize..]);
            place.write(&mut table[place_at as usize..]);
            let start = table.as_mut_ptr();
            // SAFETY: the slot is left alone until the batch's queue has passed the copy, which is
            // waited for below; the memory has room for it.
            unsafe { queue.copy(Direction::ToGpu, start, memory.address, uploaded as u64)? };
            queue.mark(DECODED)?;
            let at = |offset: u64| memory.address + offset;
            // SAFETY: all memory named in the tables belongs to the batch, which stays until it is
            // settled, or to the caller, who vouches for it; the worker has the context current.
            unsafe {
                let order = NvBatch {
                    inputs: at(inputs),
                    input_sizes: at(input_sizes),
                    outputs: at(outputs),
                    output_rooms: at(rooms),
                    output_sizes: at(sizes_at),
                    statuses: at(statuses_at),
                    chunks: count,
                    max_decoded: most,
                    temp: temp.address,
                    temp_bytes: temp.bytes as usize,
                };
                library
                    .decode(method, &order, stream)
                    .map_err(placing::gpu_failed)?;
                let failed = |e| placing::gpu_error(&duty.context, &e);
                kernels
                    .checksum(&checksums, at(checksum_at), at(work_at), stream)
                    .map_err(failed)?;
                kernels
                    .place(&place, at(place_at), stream)
                    .map_err(failed)?;
            }
            // The slot may be used again once the tables have been copied.
            queue.wait(DECODED)?;
            queue.mark(DECODED)?;
            Ok(())
        };
        let queued = place_all(&mut queue, slots, lent);
        if let Err(error) = queued {
            // What was queued ends before its memory goes.
            let _ = queue.finish();
            drop(queue);
            results.release(batch);
            return Err(error);
        }
        drop(queue);
        Ok(results)
    }

    /// The jobs that the CPU has to decode, after the GPU is done: what nvCOMP did not take, and
    /// what it says, or the checksums say, is not right.
    pub fn again(&self, batch: &Batch, counters: &Counters) -> Result<Vec<ChunkJob>> {
        // A job of which nothing was decoded has not gone well either.
        let mut is_bad = vec![true; batch.jobs.len()];
        for entry in &self.entries {
            is_bad[entry.job] = false;
        }
        for at in &self.again {
            is_bad[*at] = true;
        }
        let count = self.entries.len();
        let mut sizes = vec![0u64; count];
        let mut statuses = vec![0i32; count];
        let mut verdicts = vec![0u8; self.checked.len() * 8];
        let mut queue = batch.queue();
        let mut fetch = |to: *mut u8, from: u64, bytes: usize| match bytes {
            0 => Ok(()),
            // SAFETY: each has the size of what the GPU has written, and is waited for below.
            _ => unsafe { queue.copy(Direction::FromGpu, to, from, bytes as u64) },
        };
        let fetched = fetch(sizes.as_mut_ptr().cast(), self.sizes_at, count * 8)
            .and_then(|()| fetch(statuses.as_mut_ptr().cast(), self.statuses_at, count * 4))
            .and_then(|()| fetch(verdicts.as_mut_ptr(), self.verdicts_at, verdicts.len()));
        // Also after an error: the copies that were queued write into what is freed here.
        let finished = queue.finish();
        drop(queue);
        fetched.and(finished)?;
        for (entry, (size, status)) in self.entries.iter().zip(sizes.iter().zip(&statuses)) {
            is_bad[entry.job] |= *status != nvcomp::SUCCESS || *size != entry.room;
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

    /// Gives the memory back when all that is queued is done.
    pub fn release(&self, batch: &Batch) {
        let mut queue = batch.queue();
        self.memory.release(&mut queue);
        self.temp.release(&mut queue);
    }

    /// Counts what a batch has brought.
    pub fn count(batch: &Batch, again: &[ChunkJob], duty: &DeviceRead, counters: &Counters) {
        let plan = &duty.readings[batch.reading].plan;
        let selected = |jobs: &[ChunkJob]| -> u64 { jobs.iter().map(|j| j.elements(plan)).sum() };
        let elements = selected(&batch.jobs) - selected(again);
        counters.moved(Path::StagedBuffered, elements * plan.item().memory);
    }
}
