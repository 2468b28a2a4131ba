//! Writes chunks: workers encode them, and submitter steps hand them to the sink in order.
//!
//! The submitter writes chunks in the order of the plan, while workers finish them in any order.
//! Three rules connect the two:
//!
//! 1. An encoded chunk waits in a list until the chunks before it are written. The list is full once
//!    it has `limit` bytes.
//! 2. A worker makes a submitter step due once enough chunks can be written in order. Only one step
//!    runs at a time.
//! 3. A worker that finds the list full leaves instead of waiting, so it can serve other requests.
//!    The step that makes room requests new workers.
//!
//! Where the GPU encodes, some workers hand it large batches, and the rest of the workers encode
//! only the chunks that it cannot (docs/decisions/0020).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use penstock_codec::{CodecError, Scratch};
use penstock_engine::Recover;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::options::Options;
use penstock_engine::report::Counters;
use penstock_engine::request::{Remaining, Share, Task};

use super::device_encode::{DeviceEncode, GPU_WORKERS, GpuEncoding};
use super::filled::Filled;
use super::gather::Array;
use super::queue::{BATCH, ChangeQueue, Numbered};
use crate::execute::bound::{BoundPlan, kind_of};
use crate::execute::buffer::copied;
use crate::execute::device::placing::has_encoder;
use crate::execute::sink::{ChunkSink, ChunkStep, EncodedChunk};
use crate::{Changed, ChunkJob, in_dataset};

/// The task of writing a chunked array.
pub(crate) struct ChunkWrite {
    bound: BoundPlan,
    array: Array,
    sink: Box<dyn ChunkSink>,
    path: PathBuf,
    /// `None` if the CPU encodes all chunks.
    gpu: Option<GpuEncoding>,
    /// The number of workers that let the GPU encode.
    gpu_workers: AtomicUsize,
    /// Whether the GPU had no memory for a batch, so that the CPU encodes the rest.
    gpu_is_full: AtomicBool,
    /// Largest number of encoded bytes in the list.
    limit: u64,
    /// Largest number of workers.
    most: usize,
    /// Held during a step: only one runs at a time, so that chunks are written in order.
    stepping: Mutex<()>,
    state: Mutex<WriteState>,
}

struct WriteState {
    queue: ChangeQueue,
    /// Encoded chunks by their place in the order.
    encoded: BTreeMap<u64, Encoded>,
    /// Total size of the encoded chunks that are not written yet.
    bytes: u64,
    /// Place of the chunk to write next.
    next: u64,
    /// Workers that are running or were requested.
    workers: usize,
}

struct Encoded {
    chunk: u64,
    mask: u32,
    content: Content,
}

enum Content {
    Own(Vec<u8>),
    /// A range of the caller's memory.
    OfCaller {
        start: *const u8,
        length: usize,
    },
}

// SAFETY: the creator of the array has guaranteed that the caller's memory stays valid and
// unmodified until the request has finished.
unsafe impl Send for Content {}

/// Default limit of the bytes of encoded chunks that wait.
const LIMIT: u64 = 256 << 20;
/// A step is requested once this many bytes can be written, or when a worker leaves.
const WORTH_A_STEP: u64 = 4 << 20;
/// A step ends after this many bytes, so that other requests can use the sink.
const STEP: u64 = 32 << 20;

impl ChunkWrite {
    /// Creates the task. `workers` is the most workers that it starts with.
    pub(crate) fn new(
        bound: BoundPlan,
        array: Array,
        sink: Box<dyn ChunkSink>,
        path: PathBuf,
        (options, workers): (&Options, usize),
    ) -> ChunkWrite {
        let gpu = match &array {
            Array::Device {
                context, kernels, ..
            } => {
                let encoding = GpuEncoding::of(&bound.plan, options);
                encoding.filter(|_| has_encoder(context, kernels))
            }
            _ => None,
        };
        let limit = options.scratch.unwrap_or(LIMIT);
        // Each worker holds one decoded and one encoded chunk; their total stays within a small
        // multiple of the limit.
        let each = 2 * bound.plan.decoded_size().max(1);
        let by_memory = usize::try_from(limit.saturating_mul(4) / each).unwrap_or(usize::MAX);
        let by_work = usize::try_from(bound.plan.touched()).unwrap_or(usize::MAX);
        let most = workers.min(by_memory).min(by_work).max(1);
        ChunkWrite {
            state: Mutex::new(WriteState {
                queue: ChangeQueue::new(&bound.plan),
                encoded: BTreeMap::new(),
                bytes: 0,
                next: 0,
                workers: most,
            }),
            bound,
            array,
            sink,
            path,
            gpu,
            gpu_workers: AtomicUsize::new(0),
            gpu_is_full: AtomicBool::new(false),
            limit,
            most,
            stepping: Mutex::new(()),
        }
    }

    /// Returns the number of workers to start.
    pub(crate) fn workers(&self) -> usize {
        self.most
    }

    fn lock(&self) -> MutexGuard<'_, WriteState> {
        self.state.lock().recover()
    }

    /// Returns how the GPU encodes chunks; `None` if the CPU encodes all of them.
    fn gpu(&self) -> Option<&GpuEncoding> {
        self.gpu
            .as_ref()
            .filter(|_| !self.gpu_is_full.load(Relaxed))
    }

    /// Takes the next batch for the CPU. The batch is empty if the next chunk is for the GPU, no
    /// chunk is left, or the list is full.
    fn take(&self) -> Result<Vec<Numbered>> {
        let plan = &self.bound.plan;
        self.take_of(BATCH, |changed| {
            self.gpu().is_none_or(|gpu| !gpu.fits(changed, plan))
        })
    }

    /// As for [`ChangeQueue::next_batch_of`]; also empty if the list is full.
    fn take_of(&self, limit: u64, fits: impl Fn(&Changed) -> bool) -> Result<Vec<Numbered>> {
        let mut state = self.lock();
        if state.bytes >= self.limit {
            return Ok(Vec::new());
        }
        state.queue.next_batch_of(limit, fits)
    }

    /// Returns how many workers can find work.
    fn useful_workers(&self, state: &WriteState) -> usize {
        let is_for_gpu = |gpu: &GpuEncoding| {
            let next = state.queue.peek();
            next.is_some_and(|changed| gpu.fits(changed, &self.bound.plan))
        };
        match self.gpu() {
            Some(gpu) if is_for_gpu(gpu) => self.most.min(GPU_WORKERS),
            _ => self.most,
        }
    }

    /// Encodes chunks on the CPU until `take` returns none.
    fn encode_on_cpu(
        &self,
        share: &Share<'_>,
        scratch: &mut Scratch,
        take: impl FnMut() -> Result<Vec<Numbered>>,
    ) -> Result<()> {
        // Batches return their memory when they are done. They must not take it again after that.
        let when_full = || self.gpu_is_full.store(true, Relaxed);
        self.array
            .each_with(&self.bound, share, &when_full, take, |numbered, filled| {
                let job = &numbered.changed.job;
                let encoded = self.encode(job, filled, scratch, share.counters())?;
                self.put(numbered, encoded, share);
                Ok(())
            })
    }

    /// Lets the GPU encode batches until no chunk is left for it. The CPU encodes chunks between
    /// them that the GPU cannot encode, and all remaining chunks once the GPU has no memory.
    fn encode_on_gpu(&self, share: &Share<'_>, scratch: &mut Scratch) -> Result<()> {
        let plan = &self.bound.plan;
        while !share.stopping() {
            let batch = match self.gpu() {
                Some(gpu) => self.take_of(gpu.batch, |changed| gpu.fits(changed, plan))?,
                None => Vec::new(),
            };
            if !batch.is_empty() {
                share.joined();
                let rest = self.encode_batch(batch, share)?;
                let mut rest = rest.into_iter();
                self.encode_on_cpu(share, scratch, || Ok(cpu_batch(&mut rest)))?;
                continue;
            }
            let mut has_any = false;
            self.encode_on_cpu(share, scratch, || {
                let batch = self.take()?;
                has_any |= !batch.is_empty();
                Ok(batch)
            })?;
            if !has_any {
                break;
            }
        }
        Ok(())
    }

    /// Lets the GPU encode a batch. Returns the chunks for which it has no memory.
    fn encode_batch(&self, batch: Vec<Numbered>, share: &Share<'_>) -> Result<Vec<Numbered>> {
        let (
            Some(gpu),
            Array::Device {
                memory,
                context,
                kernels,
            },
        ) = (&self.gpu, &self.array)
        else {
            return Ok(batch);
        };
        let mut encoder = DeviceEncode::new(&self.bound, gpu, *memory, context, kernels, share)?;
        let mut rest = batch.into_iter();
        while !rest.as_slice().is_empty() && !share.stopping() && self.gpu().is_some() {
            let portion = gpu.portion(rest.as_slice());
            let streams = match encoder.encode(&rest.as_slice()[..portion]) {
                Err(error) if matches!(error.kind(), Kind::Memory | Kind::Unavailable) => {
                    self.gpu_is_full.store(true, Relaxed);
                    break;
                }
                streams => streams?,
            };
            for (stream, numbered) in streams.into_iter().zip(rest.by_ref()) {
                let size = numbered.changed.job.decoded_size;
                share.counters().decoded_gpu(size);
                self.put(&numbered, Encoded::own(&numbered, stream), share);
            }
        }
        Ok(rest.collect())
    }

    fn encode(
        &self,
        job: &ChunkJob,
        filled: Filled<'_>,
        scratch: &mut Scratch,
        counters: &Counters,
    ) -> Result<Encoded> {
        let plan = &self.bound.plan;
        let is_plain = plan.pipeline().filters.is_empty() || plan.is_unfiltered(job.chunk);
        let (mask, content) = if !is_plain {
            let encoded = plan.pipeline().encode(filled.bytes, scratch);
            let (bytes, mask) = encoded.map_err(|error| self.unencodable(job, &error))?;
            counters.decoded_cpu(job.decoded_size);
            (mask, Content::Own(bytes))
        } else if filled.stays {
            let (start, length) = (filled.bytes.as_ptr(), filled.bytes.len());
            (0, Content::OfCaller { start, length })
        } else {
            (0, Content::Own(copied(filled.bytes)?))
        };
        Ok(Encoded {
            chunk: job.chunk,
            mask,
            content,
        })
    }

    fn unencodable(&self, job: &ChunkJob, error: &CodecError) -> Error {
        let plan = &self.bound.plan;
        let first = plan.first_element(job.chunk);
        let text = format!("the chunk at {first:?} cannot be encoded: {error}");
        in_dataset(Error::new(kind_of(error), text), plan.name())
    }

    fn put(&self, numbered: &Numbered, encoded: Encoded, share: &Share<'_>) {
        let moved = numbered.changed.job.bytes(&self.bound.plan);
        share.counters().moved(self.array.path(), moved);
        let mut state = self.lock();
        state.bytes += encoded.waiting();
        state.encoded.insert(numbered.number, encoded);
        let is_worth_it = state.bytes >= WORTH_A_STEP.min(self.limit);
        if is_worth_it && state.has_next() {
            drop(state);
            share.ask_step();
        }
    }

    fn write(
        &self,
        step: &mut dyn ChunkStep,
        encoded: &Encoded,
        counters: &Counters,
    ) -> Result<()> {
        let bytes = encoded.bytes();
        step.write(EncodedChunk {
            first: self.bound.plan.first_element(encoded.chunk),
            mask: encoded.mask,
            bytes,
        })?;
        counters.chunks(1, bytes.len() as u64);
        Ok(())
    }
}

impl Encoded {
    /// A chunk that all filters encoded.
    fn own(numbered: &Numbered, bytes: Vec<u8>) -> Encoded {
        Encoded {
            chunk: numbered.changed.job.chunk,
            mask: 0,
            content: Content::Own(bytes),
        }
    }

    fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Own(bytes) => bytes,
            // SAFETY: a range of the caller's memory, which stays valid until the request has
            // finished.
            Content::OfCaller { start, length } => unsafe {
                std::slice::from_raw_parts(*start, *length)
            },
        }
    }

    /// Returns the memory that the chunk takes while it waits. A chunk in the caller's memory
    /// counts as a few bytes, so that the list is bounded.
    fn waiting(&self) -> u64 {
        match &self.content {
            Content::Own(bytes) => bytes.len().max(64) as u64,
            Content::OfCaller { .. } => 64,
        }
    }
}

impl WriteState {
    fn has_next(&self) -> bool {
        self.encoded.contains_key(&self.next)
    }
}

/// Takes the chunks of one batch for the CPU.
fn cpu_batch(rest: &mut std::vec::IntoIter<Numbered>) -> Vec<Numbered> {
    let mut bytes = 0;
    let mut count = 0;
    for numbered in rest.as_slice() {
        bytes += numbered.room();
        if bytes > BATCH && count > 0 {
            break;
        }
        count += 1;
    }
    rest.take(count).collect()
}

/// The count of a worker that lets the GPU encode.
struct GpuWorker<'a>(&'a AtomicUsize);

impl<'a> GpuWorker<'a> {
    /// Returns `None` if there are enough such workers.
    fn new(count: &'a AtomicUsize) -> Option<GpuWorker<'a>> {
        let one_more = |count| (count < GPU_WORKERS).then_some(count + 1);
        let taken = count.fetch_update(Relaxed, Relaxed, one_more);
        // A value that is created and then dropped would decrement the count.
        taken.ok().map(|_| GpuWorker(count))
    }
}

impl Drop for GpuWorker<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A running worker. Dropping it notifies the submitter, even after a panic.
struct Present<'a>(&'a ChunkWrite, &'a Share<'a>);

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.lock().workers -= 1;
        self.1.ask_step();
    }
}

impl Task for ChunkWrite {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        let _present = Present(self, share);
        let mut scratch = Scratch::default();
        let _gpu_worker = match self.gpu().and_then(|_| GpuWorker::new(&self.gpu_workers)) {
            None => return self.encode_on_cpu(share, &mut scratch, || self.take()),
            some => some,
        };
        self.encode_on_gpu(share, &mut scratch)
    }

    fn step(&self, share: &Share<'_>) -> Result<Remaining> {
        let _one = self.stepping.lock().recover();
        let mut step = self.sink.step();
        let (mut written, mut outcome) = (0, Ok(()));
        while written < STEP && outcome.is_ok() && !share.stopping() {
            let mut state = self.lock();
            let next = state.next;
            let Some(encoded) = state.encoded.remove(&next) else {
                break;
            };
            state.next += 1;
            drop(state);
            outcome = self.write(&mut *step, &encoded, share.counters());
            written += encoded.bytes().len() as u64;
            self.lock().bytes -= encoded.waiting();
        }
        drop(step);
        outcome?;
        let mut state = self.lock();
        if state.has_next() {
            share.ask_step();
        } else if state.queue.is_over() && state.next == state.queue.handed_out() {
            drop(state);
            if !self.sink.may_finish() {
                return Ok(Remaining::Later);
            }
            self.sink.finish()?;
            return Ok(Remaining::Nothing);
        }
        // Workers leave when they find no work.
        let useful = self.useful_workers(&state);
        let missing = useful - state.workers.min(useful);
        if !state.queue.is_over() && missing > 0 && state.bytes <= self.limit / 2 {
            state.workers += missing;
            return Ok(Remaining::Workers(missing));
        }
        Ok(Remaining::Steps)
    }

    fn clean_up(&self) {
        self.lock().encoded.clear();
    }

    fn named(&self, error: Error) -> Error {
        error.in_file(&self.path)
    }

    fn operation(&self) -> Operation {
        Operation::Write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_worker_beyond_the_limit_is_not_counted() {
        let count = AtomicUsize::new(0);
        let workers: Vec<_> = (0..GPU_WORKERS).map(|_| GpuWorker::new(&count)).collect();
        assert!(workers.iter().all(Option::is_some));
        assert!(GpuWorker::new(&count).is_none());
        assert_eq!(count.load(Relaxed), GPU_WORKERS);
        drop(workers);
        assert_eq!(count.load(Relaxed), 0);
        assert!(GpuWorker::new(&count).is_some());
    }
}
