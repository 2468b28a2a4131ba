//! The task of reading into GPU memory: what each worker does in turn.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use penstock_engine::error::{Error, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::gpu::{OwnContext, QueueLease};
use penstock_engine::options::{Decoder, Options};
use penstock_engine::request::{Share, Task};

use super::batches::{GpuBatches, Launched};
use super::loader::Loader;
use super::plans::DevicePlans;
use super::stager::{Failure, Stager};
use crate::execute::bound::BoundPlan;
use crate::execute::device::placing;
use crate::execute::device::scratch::wait_for_memory;
use crate::execute::memory::DeviceMemory;
use crate::execute::read::queue::{Batch, WorkQueue};

/// The task of reading into GPU memory.
pub(crate) struct DeviceRead {
    plans: DevicePlans,
    queue: WorkQueue,
    /// The reason why kernels are missing although they should be used.
    pub note: Option<String>,
    batches: GpuBatches,
}

/// Default size of the GPU memory for chunks in flight.
const SCRATCH: u64 = 1 << 30;

impl DeviceRead {
    pub(crate) fn new(
        plans: Vec<BoundPlan>,
        target: DeviceMemory,
        context: &Arc<OwnContext>,
        workers: usize,
        options: &Options,
    ) -> Result<DeviceRead> {
        let (kernels, note) = match placing::kernels(context) {
            Ok(kernels) => (Some(kernels), None),
            Err(error) if options.decode == Some(Decoder::Gpu) => return Err(error),
            Err(error) => (None, Some(format!("no kernels on this GPU: {error}"))),
        };
        let queue = WorkQueue::new(&plans, workers);
        let scratch = options.scratch.unwrap_or(SCRATCH);
        let decoder = match kernels {
            None => Decoder::Cpu,
            Some(_) => options.decode.unwrap_or(Decoder::Auto),
        };
        let batches = GpuBatches::new(&plans, decoder, scratch, (context.device, workers));
        Ok(DeviceRead {
            plans: DevicePlans::new(plans, target, context, kernels),
            queue,
            note,
            batches,
        })
    }

    /// Returns how many of `most` workers would find work.
    pub(crate) fn workers(&self, most: usize) -> Result<usize> {
        Ok(self.queue.peek(most)?.clamp(1, most))
    }
}

impl Task for DeviceRead {
    fn serve(&self, share: &Share<'_>) -> Result<()> {
        let mut lent = QueueLease::new(&self.plans.context)?;
        let mut stager = Stager::new(&self.plans, &self.batches, share);
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
        match self.plans.all.iter().find_map(BoundPlan::path) {
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
    /// makes room for the next; in between, this worker decodes chunks itself. If its share is over, it
    /// starts nothing, and concludes the batches on the GPU: another worker would not know of them.
    fn serve_with<'a>(
        &'a self,
        share: &'a Share<'a>,
        lent: &mut QueueLease<'_>,
        stager: &mut Stager<'a>,
    ) -> Result<()> {
        while !share.stopping() {
            let seen = self.plans.context.memory_returns();
            let starts = !share.is_over();
            if starts {
                self.batches.begin(&self.plans, &self.queue, lent)?;
            }
            if let Some(batch) = self.batches.to_load() {
                share.joined();
                stager.flush(lent)?;
                Loader::new(&self.plans, &self.batches, share, stager).load(&batch, lent)?;
                continue;
            }
            let lacking = if let Some(batch) = self.batches.done()? {
                self.conclude(batch, lent, stager, share)?
            } else if starts && let Some(work) = self.queue.next_batch(&self.plans.all)? {
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

    /// Decodes and places a batch on this worker. If the GPU has no memory for it, puts the rest of the work
    /// back into the queue and returns the error.
    fn stage(
        &self,
        work: Batch,
        lent: &mut QueueLease<'_>,
        stager: &mut Stager<'_>,
    ) -> Result<Option<Error>> {
        let mut left = Vec::new();
        let staged = match &work {
            Batch::Chunks(number, jobs) => stager.chunks(*number, jobs, &mut left, lent),
            Batch::Fill(number, job) => stager.fill(*number, job, lent),
        };
        let error = match staged {
            Ok(()) => return Ok(None),
            Err(Failure::Other(error)) => return Err(error),
            Err(Failure::NoMemory(error)) => error,
        };
        self.batches.close();
        match work {
            Batch::Chunks(number, _) => self.queue.put_back(number, left),
            Batch::Fill(number, job) => self.queue.put_back_fill(number, job),
        }
        Ok(Some(error))
    }

    /// Waits until a batch of this request, or a worker of any request, returns GPU memory. Fails with
    /// `error` if no memory was held since the count of returns was `seen`.
    ///
    /// This worker has put its work back, so that another worker may do it. It holds no memory and no slot
    /// while it waits.
    fn wait_for_memory(
        &self,
        seen: u64,
        error: Error,
        lent: &mut QueueLease<'_>,
        stager: &mut Stager<'_>,
        share: &Share<'_>,
    ) -> Result<()> {
        stager.flush(lent)?;
        stager.drain(lent)?;
        wait_for_memory(&self.plans.context, seen, error, || {
            if share.stopping() || self.batches.to_load().is_some() {
                return Ok(true);
            }
            let Some(batch) = self.batches.wait()? else {
                return Ok(false);
            };
            // If there is no memory for its rest either, that is back in the queue.
            self.conclude(batch, lent, stager, share)?;
            Ok(true)
        })
    }

    /// Ends a batch: decodes on the CPU, which reports errors in chunks, what the GPU could not decode. If the
    /// GPU has no memory for that, does as [`stage`](Self::stage).
    fn conclude(
        &self,
        launched: Launched,
        lent: &mut QueueLease<'_>,
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
            .count(batch, &again, &self.plans, share.counters());
        let plan = batch.plan;
        if again.is_empty() {
            let bound = self.plans.bound(plan);
            batch.jobs.iter().for_each(|job| bound.note_read(job));
        }
        // Other workers wait for the memory of the batch until it is dropped.
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
