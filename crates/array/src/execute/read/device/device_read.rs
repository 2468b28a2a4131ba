//! Reads into GPU memory. Workers decode chunks into pinned slots and launch kernels that place
//! them; meanwhile the GPU itself decodes batches of chunks.

mod balance;
mod batch;
mod decoding;
mod gather;
mod in_place;
mod launch;
mod loader;
mod rates;
mod slots;
mod stager;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use penstock_codec::filters::id;
use penstock_codec::gpu::Kernels;
use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::gpu::{Context, Lent};
use penstock_engine::options::{Decoder, Options};
use penstock_engine::request::{Share, Task};

use super::queue::{Batch, WorkQueue};
use crate::ChunkJob;
use crate::execute::bound::BoundPlan;
use crate::execute::device::placing;
use crate::execute::device::scratch::wait_for_memory;
use crate::execute::memory::DeviceMemory;
use batch::{GpuBatches, Launched};
use loader::Loader;
use stager::{Left, Stager};

/// The task of reading into GPU memory.
pub(crate) struct DeviceRead {
    plans: Vec<BoundPlan>,
    queue: WorkQueue,
    target: DeviceMemory,
    context: Arc<Context>,
    /// `None` if a stream waits for the request: kernels may share a hardware queue with that
    /// stream, and would then wait for it in turn (docs/decisions/0006). Copies do all the work in
    /// that case.
    kernels: Option<Arc<Kernels>>,
    /// Why kernels are missing although they should be used.
    pub note: Option<String>,
    batches: GpuBatches,
    /// For each plan, the size of the elements that its first filter shuffles; 1 if it is no
    /// shuffle.
    shuffles: Vec<u32>,
}

/// Position of a shuffle filter that the GPU can undo.
const SHUFFLE_AT: usize = 0;

/// Default size of the GPU memory for chunks in flight.
const SCRATCH: u64 = 1 << 30;

impl DeviceRead {
    pub(crate) fn new(
        plans: Vec<BoundPlan>,
        target: DeviceMemory,
        context: &Arc<Context>,
        workers: usize,
        options: &Options,
        copies_only: bool,
    ) -> Result<DeviceRead> {
        let (kernels, note) = match copies_only {
            true => (None, None),
            false => match placing::kernels(context) {
                Ok(kernels) => (Some(kernels), None),
                Err(error) if options.decode == Some(Decoder::Gpu) => return Err(error),
                Err(error) => (None, Some(format!("no kernels on this GPU: {error}"))),
            },
        };
        let queue = WorkQueue::new(&plans, workers);
        let scratch = options.scratch.unwrap_or(SCRATCH);
        let decoder = match kernels {
            None => Decoder::Cpu,
            Some(_) => options.decode.unwrap_or(Decoder::Auto),
        };
        let batches = GpuBatches::new(&plans, decoder, scratch, (context.device, workers));
        let shuffles = plans.iter().map(shuffled_element).collect();
        Ok(DeviceRead {
            shuffles,
            plans,
            queue,
            target,
            context: Arc::clone(context),
            kernels,
            note,
            batches,
        })
    }

    /// Returns how many elements of a chunk the GPU must unshuffle.
    fn shuffled(&self, number: usize, job: &ChunkJob) -> u64 {
        let element = self.shuffles[number];
        let is_left_out = job.is_plain || job.mask >> SHUFFLE_AT & 1 == 1;
        match element {
            0 | 1 => 0,
            _ if is_left_out => 0,
            size => job.decoded_size / u64::from(size),
        }
    }

    /// Returns how many of `most` workers would find work.
    pub(crate) fn workers(&self, most: usize) -> Result<usize> {
        Ok(self.queue.peek(most)?.clamp(1, most))
    }
}

impl Task for DeviceRead {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        let mut lent = Lent::new(&self.context)?;
        let mut stager = Stager::new(self, share);
        self.batches.enter();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.serve_with(share, &mut lent, &mut stager)
        }));
        // Whatever happened, no work of this worker accesses any memory after this.
        let drained = stager.drain(&mut lent);
        let ended = self.batches.leave();
        match outcome {
            Ok(outcome) => outcome.and(drained).and(ended),
            Err(panic) => resume_unwind(panic),
        }
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

impl DeviceRead {
    /// Starts batches for the GPU first, because they take long, then concludes finished ones, which
    /// makes room for the next; in between, this worker decodes chunks itself.
    fn serve_with<'a>(
        &'a self,
        share: &'a Share<'a>,
        lent: &mut Lent<'_>,
        stager: &mut Stager<'a>,
    ) -> Result<()> {
        while !share.stopping() {
            let seen = self.context.memory_returns();
            self.batches.begin(self, lent)?;
            if let Some(batch) = self.batches.to_load() {
                share.joined();
                stager.flush(lent)?;
                Loader::new(self, share, stager).load(&batch, lent)?;
                continue;
            }
            let lacking = if let Some(batch) = self.batches.done()? {
                self.conclude(batch, lent, stager, share)?
            } else if let Some(work) = self.queue.next_batch(&self.plans)? {
                share.joined();
                self.stage(work, lent, stager)?
            } else {
                stager.flush(lent)?;
                match self.batches.wait()? {
                    Some(batch) => self.conclude(batch, lent, stager, share)?,
                    None => break,
                }
            };
            if let Some(error) = lacking {
                self.wait_for_memory(seen, error, lent, stager, share)?;
            }
        }
        stager.flush(lent)
    }

    /// Has a worker decode and place a batch. If the GPU has no memory for it, the work that is left goes back to
    /// the queue; returns why.
    fn stage(
        &self,
        work: Batch,
        lent: &mut Lent<'_>,
        stager: &mut Stager<'_>,
    ) -> Result<Option<Error>> {
        Ok(match work {
            Batch::Chunks(number, jobs) => {
                let left = stager.chunks(number, &jobs, lent)?;
                left.map(|Left { work, error }| {
                    self.batches.close();
                    self.queue.put_back(number, work);
                    error
                })
            }
            Batch::Fill(number, job) => {
                let left = stager.fill(number, job, lent)?;
                left.map(|Left { work, error }| {
                    self.batches.close();
                    self.queue.put_back_fill(number, work);
                    error
                })
            }
        })
    }

    /// Waits until others return memory: a batch of this request, or a worker of any. Fails with `error` if
    /// nobody has held any since there were `seen` returns.
    ///
    /// This worker has put its work back, which others may do. It holds nothing while it waits.
    fn wait_for_memory(
        &self,
        seen: u64,
        error: Error,
        lent: &mut Lent<'_>,
        stager: &mut Stager<'_>,
        share: &Share<'_>,
    ) -> Result<()> {
        stager.flush(lent)?;
        stager.drain(lent)?;
        wait_for_memory(&self.context, seen, error, || {
            if share.stopping() || self.batches.to_load().is_some() {
                return Ok(true);
            }
            let Some(batch) = self.batches.wait()? else {
                return Ok(false);
            };
            // What is left of it is back in the queue, if there is no memory for it either.
            self.conclude(batch, lent, stager, share)?;
            Ok(true)
        })
    }

    /// Decodes what the GPU could not decode on the CPU, which also reports what is wrong with it. As
    /// [`stage`](Self::stage) if there is no memory for that.
    fn conclude(
        &self,
        launched: Launched,
        lent: &mut Lent<'_>,
        stager: &mut Stager<'_>,
        share: &Share<'_>,
    ) -> Result<Option<Error>> {
        let batch = &launched.batch;
        let again = launched.results.again(batch, share.counters());
        let is_whole = again.as_ref().is_ok_and(Vec::is_empty);
        self.batches.concluded(&launched, is_whole);
        let again = again?;
        launched
            .results
            .count(batch, &again, self, share.counters());
        let plan = batch.plan;
        // Whoever waits for memory waits for that of the batch until it is dropped.
        drop(launched);
        let mut jobs = again.into_iter();
        while let Some(job) = jobs.next().filter(|_| !share.stopping()) {
            if let Some(error) = self.stage(Batch::Chunks(plan, vec![job]), lent, stager)? {
                self.queue.put_back(plan, jobs.collect());
                return Ok(Some(error));
            }
        }
        Ok(None)
    }
}

fn shuffled_element(bound: &BoundPlan) -> u32 {
    let first = bound.plan.pipeline().filters.get(SHUFFLE_AT);
    let element = first
        .filter(|f| f.id == id::SHUFFLE)
        .and_then(|f| f.values.first());
    (*element.unwrap_or(&1)).max(1)
}
