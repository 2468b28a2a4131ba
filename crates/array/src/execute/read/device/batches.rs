//! All batches of one request: when one is started, what is under way, and its end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use penstock_codec::gpu::nvcomp::Nvcomp;
use penstock_engine::Recover;
use penstock_engine::error::{Kind, Result};
use penstock_engine::gpu::QueueLease;
use penstock_engine::options::Decoder;

use super::batch::{DECODED, GpuBatch};
use super::gpu_filters::{GpuFilters, stride};
use super::plans::DevicePlans;
use super::rates::{Rates, rates_of};
use super::results::Results;
use crate::execute::bound::BoundPlan;
use crate::execute::read::queue::WorkQueue;

/// Largest number of chunks in a batch: their tables must fit into one slot.
const MOST_JOBS: u64 = 1 << 16;
/// About how many chunks an H100 decodes at a time, so that more take longer.
const SIDE_BY_SIDE: u64 = 1000;

/// A batch that the GPU is decoding or has decoded.
pub(super) struct Launched {
    pub batch: Arc<GpuBatch>,
    pub results: Results,
    /// Last time at which the GPU had not finished.
    seen: Instant,
    /// Time at which the GPU had finished.
    ended: Instant,
}

impl Launched {
    pub(super) fn new(batch: &Arc<GpuBatch>, results: Results) -> Launched {
        let now = Instant::now();
        Launched {
            batch: Arc::clone(batch),
            results,
            seen: now,
            ended: now,
        }
    }

    /// Returns whether the GPU has finished.
    fn is_done(&mut self) -> Result<bool> {
        let is_done = self.batch.queue().passed(DECODED)?;
        let now = Instant::now();
        if is_done {
            // The end lies between the last two queries.
            self.ended = self.seen + now.duration_since(self.seen) / 2;
        } else {
            self.seen = now;
        }
        Ok(is_done)
    }
}

/// All batches of one request.
pub(super) struct GpuBatches {
    /// The filters of each plan.
    filters: Vec<Option<GpuFilters>>,
    pub nvcomp: Option<Nvcomp>,
    decoder: Decoder,
    scratch: u64,
    /// For each plan that the GPU and the workers share.
    rates: Vec<Option<Arc<Mutex<Rates>>>>,
    workers_at_most: usize,
    /// Whether the GPU decodes any chunk.
    has_gpu: bool,
    /// Whether no further batch will be started.
    closed: AtomicBool,
    state: Mutex<InFlight>,
    workers: AtomicUsize,
}

/// The chunks that the GPU has got since it was idle.
struct Busy {
    /// Number of the plan; `None` if the chunks are of several plans.
    plan: Option<usize>,
    chunks: u64,
    since: Instant,
}

#[derive(Default)]
struct InFlight {
    loading: Option<Arc<GpuBatch>>,
    under_way: VecDeque<Launched>,
    in_flight_bytes: u64,
    in_flight_chunks: u64,
    /// `None` while the GPU is idle.
    busy: Option<Busy>,
    /// The plan whose chunks are left to the workers.
    left_to_workers: Option<usize>,
}

impl GpuBatches {
    pub(super) fn new(
        plans: &[BoundPlan],
        decoder: Decoder,
        scratch: u64,
        (device, workers): (i32, usize),
    ) -> GpuBatches {
        let all = plans.iter().map(|r| match decoder {
            Decoder::Cpu => None,
            _ => GpuFilters::of(&r.plan.pipeline().filters),
        });
        let mut filters: Vec<Option<GpuFilters>> = all.collect();
        let method = filters.iter().flatten().map(|f| f.method).next();
        // nvCOMP may write out of bounds when its input is damaged, so it is used only on request
        // (docs/decisions/0007).
        let nvcomp = method
            .filter(|m| m.uses_nvcomp() && decoder == Decoder::Gpu)
            .and_then(|_| Nvcomp::open().ok());
        let method = method.filter(|m| !m.uses_nvcomp() || nvcomp.is_some());
        // The measured rates apply to one method.
        let fits = |f: &GpuFilters| Some(f.method) == method;
        filters.iter_mut().for_each(|of| *of = of.filter(fits));
        let rates = filters.iter().zip(plans).map(|(filters, bound)| {
            let filters = filters.as_ref().filter(|_| decoder == Decoder::Auto)?;
            Some(rates_of(device, filters, bound.plan.decoded_size()))
        });
        GpuBatches {
            rates: rates.collect(),
            workers_at_most: workers,
            closed: AtomicBool::new(method.is_none()),
            has_gpu: method.is_some(),
            filters,
            nvcomp,
            decoder,
            scratch,
            state: Mutex::default(),
            workers: AtomicUsize::new(0),
        }
    }

    /// Stops starting batches, because workers lack GPU memory.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Returns the rates for a plan; `None` if one side decodes all chunks that it can.
    pub(super) fn rates(&self, plan: usize) -> Option<MutexGuard<'_, Rates>> {
        Some(self.rates.get(plan)?.as_ref()?.lock().recover())
    }

    /// Returns how many jobs of a batch a worker loads at a time, so that all take part.
    pub(super) fn portion(&self, jobs: usize) -> usize {
        const LEAST: usize = 4;
        const MOST: usize = 32;
        jobs.div_ceil(self.workers_at_most.max(1))
            .clamp(LEAST, MOST)
    }

    fn lock(&self) -> MutexGuard<'_, InFlight> {
        self.state.lock().recover()
    }

    /// Starts a batch if the GPU should have more work.
    pub(super) fn begin(
        &self,
        plans: &DevicePlans,
        queue: &WorkQueue,
        lent: &mut QueueLease<'_>,
    ) -> Result<()> {
        if self.closed.load(Relaxed) {
            return Ok(());
        }
        // Another worker is starting one.
        let Ok(mut state) = self.state.try_lock() else {
            return Ok(());
        };
        if state.loading.is_some() {
            return Ok(());
        }
        let Some((current, left, chunk)) = queue.left()? else {
            return Ok(());
        };
        if state.busy.is_none() && state.left_to_workers == Some(current) {
            return Ok(());
        }
        let busy = state.busy.as_ref();
        let busy = busy.map(|busy| (busy.chunks, busy.since.elapsed()));
        let workers = self.workers_at_most as u64;
        let wanted = match self.rates(current) {
            Some(mut rates) => rates.share_of_gpu(left, chunk, workers, busy),
            None if self.decoder == Decoder::Gpu => left,
            None => 0,
        };
        if wanted == 0 {
            state.left_to_workers = Some(current);
            // The remaining work only shrinks, unless another plan follows.
            let is_last = self.rates.len() == 1 || left == 0;
            let is_idle = state.in_flight_chunks == 0;
            self.closed.store(left == 0 || is_idle && is_last, Relaxed);
            return Ok(());
        }
        // The chunks that the GPU decodes at a time form one batch if each of two batches had memory
        // for only half of them.
        let full = SIDE_BY_SIDE.saturating_mul(stride(chunk));
        let full = full.saturating_add(full / 2);
        let most = if full > self.scratch / 2 {
            self.scratch
        } else {
            self.scratch / 2
        };
        let room = most.min(self.scratch.saturating_sub(state.in_flight_bytes));
        if state.in_flight_chunks > 0 && room < most {
            return Ok(());
        }
        let count = wanted.min(MOST_JOBS) as usize;
        let (plan, jobs) = queue.take(count, room, |number, job| {
            let bound = plans.bound(number);
            // The cache is in host memory.
            let is_for_cpu = || bound.is_cached(job) || bound.is_to_cache(job);
            let is_asked = matches!(self.decoder, Decoder::Gpu);
            self.filters[number]
                .filter(|_| is_asked || !is_for_cpu())?
                .needs(job, bound)
        })?;
        let Some(filters) = self.filters[plan].filter(|_| !jobs.is_empty()) else {
            self.closed.store(true, Relaxed);
            return Ok(());
        };
        let since = Instant::now();
        match GpuBatch::new(plans, plan, filters, jobs, lent) {
            Ok(batch) => {
                let chunks = batch.jobs.len() as u64;
                let busy = state.busy.get_or_insert(Busy {
                    plan: Some(plan),
                    chunks: 0,
                    since,
                });
                busy.chunks += chunks;
                busy.plan = busy.plan.filter(|of| *of == plan);
                state.in_flight_bytes += batch.bytes();
                state.in_flight_chunks += chunks;
                state.loading = Some(Arc::new(batch));
                Ok(())
            }
            // The CPU needs less GPU memory.
            Err((error, jobs)) if error.kind() == Kind::Memory => {
                self.closed.store(true, Relaxed);
                queue.put_back(plan, jobs);
                Ok(())
            }
            Err((error, _)) => Err(error),
        }
    }

    /// Returns the batch that is being loaded, if some of its jobs are not begun.
    pub(super) fn to_load(&self) -> Option<Arc<GpuBatch>> {
        if !self.has_gpu {
            return None;
        }
        let state = self.lock();
        let batch = state.loading.as_ref()?;
        (batch.next.load(Relaxed) < batch.jobs.len()).then(|| Arc::clone(batch))
    }

    /// Records that the batch is loaded and its decoding queued.
    pub(super) fn launched(&self, launched: Launched) {
        let mut state = self.lock();
        state.loading = None;
        state.under_way.push_back(launched);
    }

    /// Returns a batch that the GPU has finished.
    pub(super) fn done(&self) -> Result<Option<Launched>> {
        if !self.has_gpu {
            return Ok(None);
        }
        let Ok(mut state) = self.state.try_lock() else {
            return Ok(None);
        };
        let is_done = match state.under_way.front_mut() {
            Some(first) => first.is_done()?,
            None => false,
        };
        Ok(if is_done {
            state.under_way.pop_front()
        } else {
            None
        })
    }

    /// Waits for the oldest batch in flight; `None` if there is none.
    pub(super) fn wait(&self) -> Result<Option<Launched>> {
        let Some(mut first) = self.lock().under_way.pop_front() else {
            return Ok(None);
        };
        let waited = first.is_done().and_then(|is_done| {
            if !is_done {
                first.batch.queue().wait(DECODED)?;
                first.ended = Instant::now();
            }
            Ok(())
        });
        match waited {
            Ok(()) => Ok(Some(first)),
            Err(error) => {
                // `leave` handles it on the last worker.
                self.lock().under_way.push_back(first);
                Err(error)
            }
        }
    }

    /// Records a batch whose results were read, and releases its memory. `is_whole` says that the
    /// GPU has decoded all of it.
    pub(super) fn concluded(&self, launched: &Launched, is_whole: bool) {
        let batch = &launched.batch;
        let mut state = self.lock();
        state.in_flight_bytes -= batch.bytes();
        state.in_flight_chunks -= batch.jobs.len() as u64;
        // Batches overlap, so only the time of all batches together measures the GPU.
        let is_idle = state.in_flight_chunks == 0;
        let busy = match (is_idle, &mut state.busy) {
            (true, busy) => busy.take(),
            (false, Some(busy)) => {
                busy.plan = busy.plan.filter(|_| is_whole);
                None
            }
            (false, None) => None,
        };
        drop(state);
        if let Some(busy) = busy.filter(|_| is_whole)
            && let Some(mut rates) = busy.plan.and_then(|plan| self.rates(plan))
        {
            let time = launched.ended.saturating_duration_since(busy.since);
            rates.gpu_did(busy.chunks, batch.chunk(), time);
        }
        batch.release();
        launched.results.release(batch);
    }

    pub(super) fn enter(&self) {
        self.workers.fetch_add(1, SeqCst);
    }

    /// Records that one worker has finished. The last one ends all batches, also those of a failed
    /// request.
    pub(super) fn leave(&self) -> Result<()> {
        if self.workers.fetch_sub(1, SeqCst) > 1 {
            return Ok(());
        }
        let mut state = self.lock();
        let loading = state.loading.take();
        let under_way = std::mem::take(&mut state.under_way);
        state.in_flight_bytes = 0;
        state.in_flight_chunks = 0;
        state.busy = None;
        drop(state);
        let mut outcome = Ok(());
        for launched in under_way {
            outcome = outcome.and(launched.batch.queue().finish());
            launched.batch.release();
            launched.results.release(&launched.batch);
        }
        if let Some(batch) = loading {
            outcome = outcome.and(batch.queue().finish());
            batch.release();
        }
        outcome
    }
}
