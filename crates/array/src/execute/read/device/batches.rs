//! Batches of chunks that the GPU decodes: their way from the work queue through loading to the
//! results.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use penstock_codec::Filter;
use penstock_codec::filters::id;
use penstock_codec::gpu::PlaceTable;
use penstock_codec::gpu::nvcomp::{Method, Nvcomp};
use penstock_engine::Recover;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::gpu::{CopyQueue, Holding, Lent};
use penstock_engine::options::Decoder;

use super::DeviceRead;
use super::balance::{Balance, Busy};
use super::launch::Results;
use crate::ChunkJob;
use crate::execute::bound::BoundPlan;
use crate::execute::device::ALIGNMENT;
use crate::execute::device::scratch::Scratch;

/// Filters that the GPU undoes for the most part.
#[derive(Clone, Copy, Debug)]
pub(super) struct GpuFilters {
    pub method: Method,
    method_at: usize,
    is_shuffled: bool,
    /// Position of the outermost checksum filter, which the CPU verifies while it loads.
    pub fletcher: Option<usize>,
}

impl GpuFilters {
    /// Accepts, in order of encoding: an optional shuffle, a filter that the GPU decodes, an
    /// optional checksum.
    fn of(filters: &[Filter]) -> Option<GpuFilters> {
        let mut rest = filters.iter().enumerate().peekable();
        // The kernel that places the elements undoes the shuffle.
        let shuffle = rest.next_if(|(_, f)| f.id == id::SHUFFLE);
        let (method_at, method) = rest.next()?;
        let fletcher = rest.next_if(|(_, f)| f.id == id::FLETCHER32);
        if rest.next().is_some() {
            return None;
        }
        Some(GpuFilters {
            method: Method::of_filter(method.id)?,
            method_at,
            is_shuffled: shuffle.is_some(),
            fletcher: fletcher.map(|(at, _)| at),
        })
    }

    /// Returns whether the chunk has a checksum, which the filter mask may skip.
    pub(super) fn has_fletcher(&self, job: &ChunkJob) -> bool {
        self.fletcher.is_some_and(|at| job.mask >> at & 1 == 0)
    }

    /// Returns the GPU memory that a chunk needs; `None` if the CPU must decode it.
    fn needs(&self, job: &ChunkJob, bound: &BoundPlan) -> Option<u64> {
        let most = self.method.max_decodable() as u64;
        let boxes = job.box_count();
        let fits = !job.is_plain
            && boxes <= MOST_BOXES
            && job.mask >> self.method_at & 1 == 0
            && job.decoded_size <= most
            && job.stored_size <= most;
        // nvCOMP needs temporary memory of this size in addition.
        let temp = match self.method {
            Method::Zstd => 3 * job.decoded_size,
            Method::Deflate | Method::Lz4 => 0,
        };
        let decoded = match self.place(job, bound) {
            Some(_) => 0,
            None => stride(job.decoded_size),
        };
        fits.then(|| stored_room(job.stored_size) + decoded + temp + boxes * TABLES)
    }

    /// Returns the place in the destination to which a chunk is decoded directly. Only Penstock's
    /// own kernel never writes outside the place, whatever its input.
    fn place(&self, job: &ChunkJob, bound: &BoundPlan) -> Option<u64> {
        let fits = self.method == Method::Deflate
            && job.decoded_size >= IN_PLACE_FROM
            && bound.conversion.size_after(job.decoded_size as usize) as u64 == job.decoded_size;
        fits.then(|| job.whole(&bound.plan)).flatten()
    }
}

/// Largest number of chunks in a batch: their tables must fit into one slot.
const MOST_JOBS: u64 = 1 << 16;
/// Chunks with more boxes are left to the CPU, which uploads their tables in parts.
const MOST_BOXES: u64 = 64;
/// Approximate size of a box in the tables.
const TABLES: u64 = 128;

/// Smallest chunk that is decoded directly into its place: the GPU needs many chunks at a time, and
/// large ones would take too much memory.
const IN_PLACE_FROM: u64 = 128 << 10;

/// A batch that workers load.
pub(super) struct GpuBatch {
    /// Number of its plan.
    pub plan: usize,
    pub filters: GpuFilters,
    pub jobs: Vec<ChunkJob>,
    /// Where each job's decoded bytes go.
    pub outputs: Vec<Output>,
    /// Memory for the stored bytes, and how many bytes of it are taken.
    pub stored: Scratch,
    pub taken: AtomicU64,
    decoded: Scratch,
    pub queue: Mutex<CopyQueue>,
    /// Dropped after the queue, which waits for the release of the memory.
    _holding: Holding,
    /// Number of jobs whose loading has begun, and number of jobs loaded.
    pub next: AtomicUsize,
    pub loaded: AtomicUsize,
    pub found: Mutex<Found>,
}

/// Where the GPU decodes a chunk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Output {
    pub address: u64,
    /// Whether this is the chunk's place in the destination, where it may still have to be
    /// unshuffled or converted.
    pub in_place: bool,
}

/// The results of loading.
#[derive(Default)]
pub(super) struct Found {
    pub entries: Vec<Entry>,
    /// Jobs that the CPU must decode.
    pub again: Vec<usize>,
    /// Tables for the kernel that places elements, for jobs that are not decoded in place.
    pub places: Vec<PlaceTable>,
    /// Number of elements of all jobs except those that the CPU must decode.
    pub elements: u64,
}

/// A piece of a chunk that the GPU decodes. Addresses are on the GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub job: usize,
    pub input: u64,
    pub input_size: u64,
    pub output: u64,
    pub room: u64,
    /// Address of the chunk's Adler-32 checksum, in the entry of its first piece.
    pub checksum: Option<u64>,
}

impl GpuBatch {
    /// Returns the decoded size of a chunk.
    pub(super) fn chunk(&self) -> u64 {
        self.jobs.first().map_or(1, |job| job.decoded_size)
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, CopyQueue> {
        self.queue.lock().recover()
    }

    pub(super) fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().recover()
    }

    fn bytes(&self) -> u64 {
        self.stored.bytes + self.decoded.bytes
    }

    /// Releases the memory once all queued work has finished.
    fn release(&self) {
        let mut queue = self.queue();
        self.stored.release(&mut queue);
        self.decoded.release(&mut queue);
    }

    /// Takes room in the memory for stored bytes; `None` if there is not enough.
    pub(super) fn take(&self, bytes: u64) -> Option<u64> {
        let bytes = bytes.next_multiple_of(ALIGNMENT as u64);
        let at = self.taken.fetch_add(bytes, Relaxed);
        (at + bytes <= self.stored.bytes).then_some(self.stored.address + at)
    }
}

/// Returns the room for a chunk's stored bytes, including the alignment of its pieces.
fn stored_room(stored: u64) -> u64 {
    (stored + ALIGNMENT as u64).next_multiple_of(ALIGNMENT as u64)
}

fn stride(decoded: u64) -> u64 {
    decoded.next_multiple_of(ALIGNMENT as u64)
}

/// A batch that the GPU is decoding or has decoded.
pub(super) struct Launched {
    pub batch: Arc<GpuBatch>,
    pub results: Results,
    /// When the GPU was seen to be still at it.
    seen: Instant,
    /// When the GPU had finished.
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
        match is_done {
            // It ended at some time since it was looked at last.
            true => self.ended = self.seen + now.duration_since(self.seen) / 2,
            false => self.seen = now,
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
    /// For each plan that the GPU may decode.
    balances: Vec<Option<Balance>>,
    workers_at_most: usize,
    /// Whether the GPU decodes any chunk.
    has_gpu: bool,
    /// Whether no further batch will be started.
    closed: AtomicBool,
    state: Mutex<State>,
    workers: AtomicUsize,
}

#[derive(Default)]
struct State {
    loading: Option<Arc<GpuBatch>>,
    under_way: VecDeque<Launched>,
    in_flight_bytes: u64,
    in_flight_chunks: u64,
    /// `None` while the GPU has nothing.
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
        let nvcomp = match (method, decoder) {
            (Some(Method::Lz4 | Method::Zstd), Decoder::Gpu) => Nvcomp::open().ok(),
            _ => None,
        };
        let method = method.filter(|m| *m == Method::Deflate || nvcomp.is_some());
        // The measured rates apply to one method.
        let fits = |f: &GpuFilters| Some(f.method) == method;
        filters.iter_mut().for_each(|of| *of = of.filter(fits));
        let balances = filters.iter().zip(plans).map(|(filters, bound)| {
            let filters = filters.as_ref()?;
            let kind = (
                filters.method,
                filters.is_shuffled,
                filters.fletcher.is_some(),
            );
            let chunk = bound.plan.decoded_size();
            Some(Balance::new(device, kind, chunk, workers))
        });
        GpuBatches {
            balances: balances.collect(),
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

    /// Starts no further batch, since workers lack memory.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Returns the rates for a plan; `None` if the GPU decodes none of its chunks.
    pub(super) fn balance(&self, plan: usize) -> Option<&Balance> {
        self.balances.get(plan)?.as_ref()
    }

    /// Returns how many jobs of a batch a worker loads at a time, so that all take part.
    pub(super) fn portion(&self, jobs: usize) -> usize {
        const LEAST: usize = 4;
        const MOST: usize = 32;
        jobs.div_ceil(self.workers_at_most.max(1))
            .clamp(LEAST, MOST)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().recover()
    }

    /// Starts a batch if the GPU should have more work.
    pub(super) fn begin(&self, task: &DeviceRead, lent: &mut Lent<'_>) -> Result<()> {
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
        let Some((current, left, chunk)) = task.queue.left()? else {
            return Ok(());
        };
        if state.busy.is_none() && state.left_to_workers == Some(current) {
            return Ok(());
        }
        let balance = self.balance(current);
        let wanted = match (self.decoder, balance) {
            (Decoder::Gpu, _) => left,
            (_, Some(balance)) => balance.share(left, chunk, state.busy.as_ref()),
            (_, None) => 0,
        };
        if wanted == 0 {
            state.left_to_workers = Some(current);
            // The remaining work only shrinks, unless another plan follows.
            let is_last = self.balances.len() == 1 || left == 0;
            let is_idle = state.in_flight_chunks == 0;
            self.closed.store(left == 0 || is_idle && is_last, Relaxed);
            return Ok(());
        }
        // As many chunks as the GPU can hold at a time form one batch if two batches had memory for
        // only half of them each.
        let full = balance.map_or(0, Balance::saturation);
        let full = full.saturating_mul(stride(chunk));
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
        let (plan, jobs) = task.queue.take(count, room, |number, job| {
            let bound = &task.plans[number];
            // What is kept is decoded by the CPU, into host memory.
            let is_kept = bound.place_in_cache(job).is_some();
            let is_asked = matches!(self.decoder, Decoder::Gpu);
            self.filters[number]
                .filter(|_| is_asked || !is_kept)?
                .needs(job, bound)
        })?;
        let Some(filters) = self.filters[plan].filter(|_| !jobs.is_empty()) else {
            self.closed.store(true, Relaxed);
            return Ok(());
        };
        let since = Instant::now();
        match self.make(task, plan, filters, jobs, lent) {
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
                task.queue.put_back(plan, jobs);
                Ok(())
            }
            Err((error, _)) => Err(error),
        }
    }

    fn make(
        &self,
        task: &DeviceRead,
        plan: usize,
        filters: GpuFilters,
        jobs: Vec<ChunkJob>,
        lent: &Lent<'_>,
    ) -> std::result::Result<GpuBatch, (Error, Vec<ChunkJob>)> {
        let stored = jobs.iter().map(|j| stored_room(j.stored_size)).sum();
        let mut decoded = 0;
        let mut outputs: Vec<Output> = jobs
            .iter()
            .map(|job| match filters.place(job, &task.plans[plan]) {
                Some(place) => Output {
                    address: task.target.start + place,
                    in_place: true,
                },
                None => {
                    let address = decoded;
                    decoded += stride(job.decoded_size);
                    Output {
                        address,
                        in_place: false,
                    }
                }
            })
            .collect();
        let holding = lent.context().hold_memory();
        let made = lent.context().queue().and_then(|mut queue| {
            let stored = Scratch::new(&mut queue, stored)?;
            match Scratch::new(&mut queue, decoded) {
                Ok(decoded) => Ok((queue, stored, decoded)),
                Err(error) => {
                    stored.release(&mut queue);
                    Err(error)
                }
            }
        });
        match made {
            Ok((mut queue, stored, decoded)) => {
                // Loaders copy on their own queues, which must wait for this allocation.
                if let Err(error) = queue.mark(ALLOCATED) {
                    stored.release(&mut queue);
                    decoded.release(&mut queue);
                    return Err((error, jobs));
                }
                for output in outputs.iter_mut().filter(|o| !o.in_place) {
                    output.address += decoded.address;
                }
                Ok(GpuBatch {
                    outputs,
                    plan,
                    filters,
                    jobs,
                    stored,
                    taken: AtomicU64::new(0),
                    decoded,
                    queue: Mutex::new(queue),
                    _holding: holding,
                    next: AtomicUsize::new(0),
                    loaded: AtomicUsize::new(0),
                    found: Mutex::default(),
                })
            }
            Err(error) => Err((error, jobs)),
        }
    }

    /// Returns the batch to load if some of its jobs are not begun.
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
                // The last worker to leave handles it.
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
        // Batches overlap, so that only the time of all together says what the GPU can do.
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
            && let Some(balance) = busy.plan.and_then(|plan| self.balance(plan))
        {
            let time = launched.ended.saturating_duration_since(busy.since);
            balance.gpu_did(busy.chunks, batch.chunk(), time);
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

/// Marks on a batch's queue: its memory is allocated; all its chunks are decoded and placed.
pub(super) const ALLOCATED: usize = 0;
pub(super) const DECODED: usize = 1;
