//! Reads into host memory: each worker takes chunks from the file to their destination.

use penstock_codec::convert::TypeConversion;
use penstock_codec::{CodecError, Scratch};
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::report::{Counters, Path};
use penstock_engine::request::{Share, Task};

use super::queue::{Batch, WorkQueue};
use crate::ChunkJob;
use crate::execute::bound::{BoundPlan, Stored};
use crate::execute::buffer::Buffer;
use crate::execute::elements::Elements;
use crate::execute::memory::HostMemory;

/// The task of reading into host memory.
pub(crate) struct HostRead {
    plans: Vec<BoundPlan>,
    queue: WorkQueue,
    memory: HostMemory,
}

impl HostRead {
    pub(crate) fn new(plans: Vec<BoundPlan>, memory: HostMemory) -> HostRead {
        HostRead {
            queue: WorkQueue::new(&plans),
            plans,
            memory,
        }
    }

    /// Returns how many of `most` workers would find work.
    pub(crate) fn workers(&self, most: usize) -> Result<usize> {
        Ok(self.queue.peek(most)?.clamp(1, most))
    }
}

/// Buffers that a worker reuses from chunk to chunk.
#[derive(Default)]
struct Room {
    stored: Buffer,
    decoded: Buffer,
    scratch: Scratch,
}

impl Task for HostRead {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        let mut room = Room::default();
        while !share.stopping() {
            let Some(batch) = self.queue.next_batch(&self.plans)? else {
                break;
            };
            share.joined();
            match batch {
                Batch::Fill(number, job) => {
                    let plan = &self.plans[number].plan;
                    if let Some(value) = plan.fill() {
                        self.elements(number).fill(job.boxes(plan), value);
                        let filled = job.bytes(plan);
                        share.counters().moved(Path::HostBuffered, filled);
                    }
                }
                Batch::Chunks(number, jobs) => {
                    self.read(number, &jobs, &mut room, share.counters())?;
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
    fn elements(&self, number: usize) -> Elements<'_> {
        let bound = &self.plans[number];
        Elements {
            mapping: bound.plan.element(),
            conversion: &bound.conversion,
            memory: self.memory,
        }
    }

    fn read(
        &self,
        number: usize,
        jobs: &[ChunkJob],
        room: &mut Room,
        counters: &Counters,
    ) -> Result<()> {
        let bound = &self.plans[number];
        if let [job] = jobs
            && let Some(target) = job.whole(&bound.plan)
            && matches!(bound.conversion, TypeConversion::Copy)
            && bound.comes_straight(job, counters)?
        {
            // SAFETY: the jobs' elements are disjoint, and this is their only slice.
            let output = unsafe { self.memory.slice_mut(target, job.decoded_size) };
            bound.fetch_into(job, counters, output)?;
            counters.moved(Path::HostBuffered, job.decoded_size);
            bound.count(job, counters);
            return Ok(());
        }
        let stored = bound.fetch(jobs, counters, &mut room.stored)?;
        for job in jobs {
            let bytes = self.decode(number, job, &stored, &mut room.decoded, &mut room.scratch)?;
            counters.moved(stored.path(Path::HostBuffered, Path::HostDirect), bytes);
            bound.count(job, counters);
        }
        Ok(())
    }

    /// Decodes one chunk and places the selected elements. Returns the number of decoded bytes.
    fn decode(
        &self,
        number: usize,
        job: &ChunkJob,
        stored: &Stored<'_>,
        decoded: &mut Buffer,
        scratch: &mut Scratch,
    ) -> Result<u64> {
        let bound = &self.plans[number];
        let elements = self.elements(number);
        let selected = job.bytes(&bound.plan);
        let bytes = stored.of(job, bound.needed(job));
        if job.is_plain {
            elements.place(job.boxes(&bound.plan), bytes, bound.needed(job).0);
            return Ok(selected);
        }
        let failed = |error: CodecError| bound.undecodable(job, &error);
        bound.refuse_bomb(job)?;
        let pipeline = &bound.plan.pipeline();
        match job.whole(&bound.plan) {
            Some(target) if matches!(bound.conversion, TypeConversion::Copy) => {
                // SAFETY: the jobs' elements are disjoint, and this is their only slice.
                let output = unsafe { self.memory.slice_mut(target, job.decoded_size) };
                pipeline
                    .decode(job.mask, bytes, output, scratch)
                    .map_err(failed)?;
            }
            _ => {
                let output = decoded.room(job.decoded_size as usize)?;
                pipeline
                    .decode(job.mask, bytes, output, scratch)
                    .map_err(failed)?;
                elements.place(job.boxes(&bound.plan), output, 0);
            }
        }
        Ok(selected)
    }
}
