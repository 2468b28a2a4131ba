//! Writes elements without encoding them: workers gather and convert blocks, and write them to the
//! file themselves or leave them to a sink.

use std::path::PathBuf;
use std::sync::Mutex;

use penstock_engine::Recover;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::file::side::FileSide;
use penstock_engine::report::Path;
use penstock_engine::request::{Remaining, Share, Task};

use super::filled::Filled;
use super::gather::Array;
use super::queue::ChangeQueue;
use crate::ChunkJob;
use crate::execute::bound::BoundPlan;
use crate::execute::memory::HostMemory;
use crate::execute::sink::{BlockSink, DenseSink};

/// The task of writing elements into storage without filters.
pub(crate) struct ElementWrite {
    bound: BoundPlan,
    array: Array,
    target: Target,
    path: PathBuf,
    queue: Mutex<ChangeQueue>,
}

/// Where a worker writes a block.
enum Target {
    /// In the file, from the first to the last changed element of the block. The elements between
    /// that do not change are read first.
    Blocks(Box<dyn BlockSink>),
    /// In the file, where the new elements are stored, and at no other byte. Other writers, in this
    /// process or another, may write the elements between them at the same time. Each run of
    /// elements that follow each other in the file is one write.
    InPlace,
    /// In host memory, from which the sink writes all elements in a submitter step, because only
    /// the format's library can write them.
    Dense {
        sink: Box<dyn DenseSink>,
        /// All elements, contiguous. Each worker writes its own parts.
        gathered: Vec<u8>,
        memory: HostMemory,
    },
}

impl ElementWrite {
    /// Writes the blocks of a contiguous array.
    pub(crate) fn blocks(
        bound: BoundPlan,
        array: Array,
        sink: Box<dyn BlockSink>,
        path: PathBuf,
    ) -> ElementWrite {
        let queue = ChangeQueue::new(&bound.plan);
        ElementWrite::new(bound, array, Target::Blocks(sink), path, queue)
    }

    /// Writes the new elements and no other byte of the file.
    pub(crate) fn in_place(bound: BoundPlan, array: Array, path: PathBuf) -> ElementWrite {
        let queue = ChangeQueue::in_place(&bound.plan);
        ElementWrite::new(bound, array, Target::InPlace, path, queue)
    }

    /// Writes through a sink that takes all elements, of `bytes` bytes, at once.
    pub(crate) fn dense(
        bound: BoundPlan,
        array: Array,
        sink: Box<dyn DenseSink>,
        bytes: u64,
        path: PathBuf,
    ) -> Result<ElementWrite> {
        let mut gathered = Vec::new();
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        gathered.try_reserve_exact(length).map_err(|_| {
            sink.end();
            let text = format!("no memory to gather the {length} bytes to write");
            Error::new(Kind::Memory, text)
        })?;
        gathered.resize(length, 0);
        // SAFETY: the allocation does not move with its owner, the task, and nothing else uses it
        // before all workers have left.
        let memory = unsafe { HostMemory::new(gathered.as_mut_ptr(), bytes) };
        let target = Target::Dense {
            sink,
            gathered,
            memory,
        };
        let queue = ChangeQueue::new(&bound.plan);
        Ok(ElementWrite::new(bound, array, target, path, queue))
    }

    fn new(
        bound: BoundPlan,
        array: Array,
        target: Target,
        path: PathBuf,
        queue: ChangeQueue,
    ) -> ElementWrite {
        ElementWrite {
            bound,
            array,
            target,
            path,
            queue: Mutex::new(queue),
        }
    }

    /// Gathers all blocks, writes each by `write`, and counts its elements as moved along `path`.
    fn each(
        &self,
        share: &Share<'_>,
        path: Path,
        write: impl Fn(&ChunkJob, &Filled<'_>) -> Result<()>,
    ) -> Result<()> {
        let take = || self.queue.lock().recover().next_batch();
        self.array
            .each(&self.bound, share, take, |numbered, filled| {
                let job = &numbered.changed.job;
                write(job, &filled)?;
                share.counters().moved(path, job.bytes(&self.bound.plan));
                Ok(())
            })
    }

    /// Writes the new elements of a block, whose bytes are `filled`.
    fn write_runs(&self, job: &ChunkJob, filled: &Filled<'_>, side: &FileSide<'_>) -> Result<()> {
        let plan = &self.bound.plan;
        let move_run = |(start, end): (u64, u64)| {
            write(job, filled, (start, end), side).map_err(|error| plan.name_in(job, error))
        };
        let mut last: Option<(u64, u64)> = None;
        for strided in job.boxes(plan) {
            for run in strided.runs() {
                let (start, end) = (run.chunk, run.chunk + run.elements * plan.file_element());
                last = match last {
                    Some((first, before)) if before == start => Some((first, end)),
                    Some(complete) => {
                        move_run(complete)?;
                        Some((start, end))
                    }
                    None => Some((start, end)),
                };
            }
        }
        last.map_or(Ok(()), move_run)
    }
}

/// Writes the bytes `start..end` of a block to the file.
fn write(
    job: &ChunkJob,
    filled: &Filled<'_>,
    (start, end): (u64, u64),
    side: &FileSide<'_>,
) -> Result<()> {
    let bytes = &filled.bytes[start as usize..end as usize];
    let from = bytes.as_ptr().cast_mut();
    // SAFETY: a write only reads the bytes.
    unsafe { side.move_buffered(from, job.address + start, end - start) }
}

impl Task for ElementWrite {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        if let Target::Dense { sink, memory, .. } = &self.target {
            return self.each(share, sink.path(), |job, filled| {
                // SAFETY: blocks are disjoint, and each is handed out once.
                let to = unsafe { memory.slice_mut(job.address, job.decoded_size) };
                to.copy_from_slice(filled.bytes);
                Ok(())
            });
        }
        let file = self.bound.file(0)?;
        let side = FileSide::new(&file, Operation::Write, share.counters());
        self.each(share, self.array.path(), |job, filled| match self.target {
            Target::InPlace => self.write_runs(job, filled, &side),
            _ => write(job, filled, job.span, &side),
        })
    }

    /// Runs after all workers have left, because no worker makes a step due.
    fn step(&self, _share: &Share<'_>) -> Result<Remaining> {
        match &self.target {
            Target::Blocks(sink) if !sink.may_finish() => return Ok(Remaining::Later),
            Target::Dense { sink, .. } if !sink.may_finish() => return Ok(Remaining::Later),
            Target::Blocks(sink) => sink.finish()?,
            Target::Dense { sink, gathered, .. } => sink.write(gathered)?,
            Target::InPlace => {}
        }
        Ok(Remaining::Nothing)
    }

    fn end_steps(&self) {
        match &self.target {
            Target::Blocks(sink) => sink.end(),
            Target::Dense { sink, .. } => sink.end(),
            Target::InPlace => {}
        }
    }

    fn named(&self, error: Error) -> Error {
        error.in_file(&self.path)
    }

    fn operation(&self) -> Operation {
        Operation::Write
    }
}
