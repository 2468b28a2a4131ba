//! Writes chunks: workers encode them, and submitter steps hand them to the sink in order.
//!
//! Encoded chunks wait in a list until the chunks before them are written. A worker that finds the
//! list full leaves instead of waiting; the step that makes room requests new workers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use penstock_codec::{CodecError, Scratch};
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::report::Counters;
use penstock_engine::request::{Remaining, Share, Task};

use super::gather::{Array, Filled};
use super::queue::{ChangeQueue, Numbered};
use crate::execute::bound::BoundPlan;
use crate::execute::sink::{ChunkSink, ChunkStep, EncodedChunk};
use crate::{ChunkJob, in_dataset};

/// The task of writing a chunked array.
pub(crate) struct ChunkWrite {
    bound: BoundPlan,
    array: Array,
    sink: Box<dyn ChunkSink>,
    path: PathBuf,
    /// Largest number of encoded bytes in the list.
    limit: u64,
    /// Largest number of workers.
    most: usize,
    /// Held during a step: only one runs at a time, so that chunks are written in order.
    stepping: Mutex<()>,
    state: Mutex<State>,
}

struct State {
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
    Lent {
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
/// A step ends after this many bytes, so that others can use the sink.
const STEP: u64 = 32 << 20;

impl ChunkWrite {
    /// Makes the task; `workers` is the number of workers that it starts with at most.
    pub(crate) fn new(
        bound: BoundPlan,
        array: Array,
        sink: Box<dyn ChunkSink>,
        path: PathBuf,
        scratch: Option<u64>,
        workers: usize,
    ) -> ChunkWrite {
        let limit = scratch.unwrap_or(LIMIT);
        // Each worker holds one decoded and one encoded chunk; their total stays within a small
        // multiple of the limit.
        let each = 2 * bound.plan.decoded_size().max(1);
        let by_memory = usize::try_from(limit.saturating_mul(4) / each).unwrap_or(usize::MAX);
        let by_work = usize::try_from(bound.plan.touched()).unwrap_or(usize::MAX);
        let most = workers.min(by_memory).min(by_work).max(1);
        ChunkWrite {
            state: Mutex::new(State {
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
            limit,
            most,
            stepping: Mutex::new(()),
        }
    }

    /// Returns the number of workers to start.
    pub(crate) fn workers(&self) -> usize {
        self.most
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes the next batch; empty if no chunk is left or the list is full.
    fn take(&self) -> Result<Vec<Numbered>> {
        let mut state = self.lock();
        if state.bytes >= self.limit {
            return Ok(Vec::new());
        }
        state.queue.next_batch()
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
            (0, Content::Lent { start, length })
        } else {
            (0, Content::Own(filled.bytes.to_vec()))
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
        in_dataset(Error::new(Kind::Io, text), plan.name())
    }

    fn put(&self, number: u64, encoded: Encoded, share: &Share<'_>) {
        let mut state = self.lock();
        state.bytes += encoded.waiting();
        state.encoded.insert(number, encoded);
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
    fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Own(bytes) => bytes,
            // SAFETY: a range of the caller's memory, which stays valid until the request has
            // finished.
            Content::Lent { start, length } => unsafe {
                std::slice::from_raw_parts(*start, *length)
            },
        }
    }

    /// Returns the memory that the chunk takes while it waits. Chunks in the caller's memory count
    /// a little, too, so that the list is bounded.
    fn waiting(&self) -> u64 {
        match &self.content {
            Content::Own(bytes) => bytes.len().max(64) as u64,
            Content::Lent { .. } => 64,
        }
    }
}

impl State {
    fn has_next(&self) -> bool {
        self.encoded.contains_key(&self.next)
    }
}

/// A running worker. Dropping it notifies the submitter, however the worker ends.
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
        self.array.each(
            &self.bound,
            share,
            || self.take(),
            |numbered, filled| {
                let job = &numbered.changed.job;
                let encoded = self.encode(job, filled, &mut scratch, share.counters())?;
                let moved = job.bytes(&self.bound.plan);
                share.counters().moved(self.array.path(), moved);
                self.put(numbered.number, encoded, share);
                Ok(())
            },
        )
    }

    fn step(&self, share: &Share<'_>) -> Result<Remaining> {
        let _one = self.stepping.lock().unwrap_or_else(|e| e.into_inner());
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
            self.sink.finish()?;
            return Ok(Remaining::Nothing);
        }
        // Workers leave when they find nothing to do.
        let missing = self.most - state.workers.min(self.most);
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
