//! Reads into host memory: each worker takes chunks from the file to their destination.

use penstock_codec::convert::TypeConversion;
use penstock_codec::{CodecError, Scratch};
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::report::{Counters, Path};
use penstock_engine::request::{Share, Task};

use super::queue::{Batch, WorkQueue};
use crate::execute::bound::{BoundPlan, Stored};
use crate::execute::buffer::{Buffer, zeroed};
use crate::execute::elements::Elements;
use crate::execute::memory::HostMemory;
use crate::{ChunkJob, FillJob};

/// The task of reading into host memory.
pub(crate) struct HostRead {
    plans: Vec<BoundPlan>,
    queue: WorkQueue,
    memory: HostMemory,
}

impl HostRead {
    pub(crate) fn new(plans: Vec<BoundPlan>, memory: HostMemory, workers: usize) -> HostRead {
        HostRead {
            queue: WorkQueue::new(&plans, workers),
            plans,
            memory,
        }
    }

    /// Returns how many of `most` workers would find work.
    pub(crate) fn workers(&self, most: usize) -> Result<usize> {
        Ok(self.queue.peek(most)?.clamp(1, most))
    }
}

/// Bytes of a part of a chunk that is read at a time, if there is nothing to decode: as many as stay in the cache of
/// a processor until their elements are placed.
const PIECE: u64 = 128 << 10;

/// Buffers that a worker reuses from chunk to chunk.
#[derive(Default)]
pub(in crate::execute) struct WorkerBuffers {
    stored: Buffer,
    decoded: Buffer,
    scratch: Scratch,
}

impl WorkerBuffers {
    /// Frees the buffers if they exceed 4 MiB, because the calling thread keeps them.
    pub(in crate::execute) fn trim(&mut self) {
        const MOST: usize = 4 << 20;
        if self.stored.bytes() + self.decoded.bytes() > MOST {
            *self = WorkerBuffers::default();
        }
    }
}

impl Task for HostRead {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        let mut buffers = WorkerBuffers::default();
        while !share.is_over() {
            let Some(batch) = self.queue.next_batch(&self.plans)? else {
                break;
            };
            share.joined();
            match batch {
                Batch::Fill(number, job) => {
                    let filled = self.reader(number).fill(&job);
                    share.counters().moved(Path::HostBuffered, filled);
                }
                Batch::Chunks(number, jobs) => {
                    let reader = self.reader(number);
                    let (path, bytes) = reader.read(&jobs, &mut buffers, share.counters())?;
                    share.counters().moved(path, bytes);
                }
            }
        }
        Ok(())
    }

    fn named(&self, error: Error) -> Error {
        match self.plans.iter().find_map(BoundPlan::path) {
            Some(path) => error.in_file(path),
            None => error,
        }
    }

    fn operation(&self) -> Operation {
        Operation::Read
    }
}

impl HostRead {
    fn reader(&self, number: usize) -> HostReader<'_> {
        HostReader {
            bound: &self.plans[number],
            memory: self.memory,
        }
    }
}

/// Reads chunks of one plan into host memory, on the calling thread.
#[derive(Clone, Copy)]
pub(in crate::execute) struct HostReader<'a> {
    pub bound: &'a BoundPlan,
    pub memory: HostMemory,
}

impl HostReader<'_> {
    fn elements(&self) -> Elements<'_> {
        Elements {
            mapping: self.bound.plan.element(),
            conversion: &self.bound.conversion,
            memory: self.memory,
        }
    }

    /// Fills the elements of a chunk that was never written. Returns the number of bytes.
    pub(in crate::execute) fn fill(&self, job: &FillJob) -> u64 {
        let plan = &self.bound.plan;
        match plan.fill() {
            None => 0,
            Some(value) => {
                self.elements().fill(job.boxes(plan), value);
                job.bytes(plan)
            }
        }
    }

    /// Reads some chunks, sorted by address, by one read of the file. Returns the path of their
    /// bytes, and their number in memory.
    pub(in crate::execute) fn read(
        &self,
        jobs: &[ChunkJob],
        buffers: &mut WorkerBuffers,
        counters: &Counters,
    ) -> Result<(Path, u64)> {
        let plan = &self.bound.plan;
        if let [job] = jobs
            && self.is_in_pieces(job)
            && self.bound.comes_straight(job, counters)?
        {
            self.read_pieces(job, &mut buffers.stored, counters)?;
            self.bound.count(job, counters);
            return Ok((Path::HostBuffered, job.bytes(plan)));
        }
        let mut bytes = 0;
        let mut rest = Vec::new();
        let mut jobs = jobs;
        if self.bound.cache.is_some() && jobs.iter().any(|job| !job.is_plain) {
            for job in jobs {
                match self.bound.cached(job) {
                    Some(decoded) => {
                        self.place(job, &decoded);
                        bytes += job.bytes(plan);
                    }
                    None => rest.push(job.clone()),
                }
            }
            if rest.is_empty() {
                return Ok((Path::HostBuffered, bytes));
            }
            jobs = &rest;
        }
        let stored = self.bound.fetch(jobs, counters, &mut buffers.stored)?;
        for job in jobs {
            bytes += self.take(job, &stored, &mut buffers.decoded, &mut buffers.scratch)?;
            self.bound.count(job, counters);
        }
        Ok((stored.path(Path::HostBuffered, Path::HostDirect), bytes))
    }

    /// Whether a read fetches and places one piece after the other: there is a single one, which needs no buffer,
    /// or the pieces are of one box.
    fn is_in_pieces(&self, job: &ChunkJob) -> bool {
        self.target(job).is_some() || job.span.1 - job.span.0 > PIECE && job.box_count() == 1
    }

    /// Returns the place of the decoded bytes in memory, if they lie there as in the chunk.
    fn target(&self, job: &ChunkJob) -> Option<u64> {
        let is_copy = matches!(self.bound.conversion, TypeConversion::Copy);
        job.whole(&self.bound.plan).filter(|_| is_copy)
    }

    /// Reads the selected elements of a chunk of which [`is_in_pieces`](Self::is_in_pieces) is true.
    fn read_pieces(&self, job: &ChunkJob, buffer: &mut Buffer, counters: &Counters) -> Result<()> {
        if let Some(target) = self.target(job) {
            // SAFETY: the jobs' elements are disjoint, and this is their only slice.
            let output = unsafe { self.memory.slice_mut(target, job.decoded_size) };
            return self.bound.fetch_into((job, 0), counters, output);
        }
        let plan = &self.bound.plan;
        let sizes = (plan.file_element(), plan.memory_element());
        for piece in job.boxes(plan).flat_map(|all| all.pieces(PIECE, sizes)) {
            let from = piece.chunk;
            let bytes = buffer.room((piece.end(sizes.0) - from) as usize)?;
            self.bound.fetch_into((job, from), counters, bytes)?;
            self.elements().place(std::iter::once(piece), bytes, from);
        }
        Ok(())
    }

    /// Places the selected elements of a decoded chunk.
    pub(in crate::execute) fn place(&self, job: &ChunkJob, decoded: &[u8]) {
        self.elements()
            .place(job.boxes(&self.bound.plan), decoded, 0);
    }

    /// Decodes one chunk and places the selected elements. Returns the number of their bytes.
    fn take(
        &self,
        job: &ChunkJob,
        stored: &Stored<'_>,
        decoded: &mut Buffer,
        scratch: &mut Scratch,
    ) -> Result<u64> {
        let plan = &self.bound.plan;
        if job.is_plain {
            let needed = self.bound.needed(job);
            let bytes = stored.of(job, needed);
            self.elements().place(job.boxes(plan), bytes, needed.0);
            return Ok(job.bytes(plan));
        }
        self.bound.refuse_bomb(job)?;
        let length = job.decoded_size as usize;
        if self.bound.is_to_cache(job)
            && let Some(mut own) = zeroed(length)
        {
            self.decode(job, stored, &mut own, scratch)?;
            self.place(job, &own);
            self.bound.add_to_cache(job, own);
            return Ok(job.bytes(plan));
        }
        self.bound.note_read(job);
        match self.target(job) {
            Some(target) => {
                // SAFETY: the jobs' elements are disjoint, and this is their only slice.
                let output = unsafe { self.memory.slice_mut(target, job.decoded_size) };
                self.decode(job, stored, output, scratch)?;
            }
            None => {
                let output = decoded.room(length)?;
                self.decode(job, stored, output, scratch)?;
                self.place(job, output);
            }
        }
        Ok(job.bytes(plan))
    }

    /// Undoes the filters of a chunk, after [`BoundPlan::refuse_bomb`].
    fn decode(
        &self,
        job: &ChunkJob,
        stored: &Stored<'_>,
        output: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let bytes = stored.of(job, self.bound.needed(job));
        let pipeline = self.bound.plan.pipeline();
        pipeline
            .decode(job.mask, bytes, output, scratch)
            .map_err(|error: CodecError| self.bound.undecodable(job, &error))
    }
}
