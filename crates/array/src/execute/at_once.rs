//! Small reads that the calling thread carries out itself.

use std::cell::RefCell;
use std::sync::Arc;

use penstock_codec::convert::TypeConversion;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::file::side::{Direct, FileSide};
use penstock_engine::memory::Memory;
use penstock_engine::options::{Decoder, Options};
use penstock_engine::report::{Counters, Report};
use penstock_engine::request::{
    AtOnce, MOST_AT_ONCE, MOST_CACHED_AT_ONCE, MOST_CHUNKS, MOST_DECODED, MOST_PLAIN, MOST_READS,
    are_cached, is_quick,
};
use penstock_engine::{Extent, Stream};

use super::bound::BoundPlan;
use super::memory::HostMemory;
use super::plain::few_rows;
use super::read::{HostReader, WorkerBuffers};
use crate::{ChunkJob, FileRange, PlanJob};

/// A small read, as its caller describes it.
pub struct SmallReadOrder {
    /// The planned read.
    pub bound: BoundPlan,
    /// Lowest address of the destination.
    pub address: usize,
    /// Bytes of the destination.
    pub length: u64,
    /// Whether the elements are contiguous there.
    pub is_dense: bool,
    /// The memory there.
    pub memory: Memory,
    /// The options of the call, completed by the outer levels.
    pub options: Options,
    /// The stream whose queued work precedes the read.
    pub after: Option<Stream>,
}

/// A read that [`prepare`](Self::prepare) accepted for the calling thread.
pub struct SmallRead {
    bound: BoundPlan,
    work: Jobs,
    at_once: AtOnce,
    length: u64,
}

/// The work of a small read.
enum Jobs {
    /// One range of the file.
    Range(FileRange),
    /// Ranges far from each other, in which the bytes are those of memory.
    Rows(Vec<Extent>),
    /// Parts of a few chunks or blocks, or of more chunks that are in the cache.
    Parts(Vec<Part>),
}

struct Part {
    work: PlanJob,
    /// The decoded bytes of the chunk, if they were in the cache.
    cached: Option<Arc<Vec<u8>>>,
}

/// The most chunks that one thread takes out of the cache, or fills, sooner than several.
const MOST_PARTS: usize = 1024;

/// The rows of which the page cache is asked, in place of all. Rows that are not cached are read one after the other.
const ROWS_LOOKED_AT: usize = 8;

thread_local! {
    static BUFFERS: RefCell<WorkerBuffers> = RefCell::default();
}

impl SmallRead {
    /// Returns the read if one thread carries it out faster than several. Otherwise returns the
    /// order: workers carry it out, and report its errors.
    pub fn prepare(order: SmallReadOrder) -> std::result::Result<SmallRead, Box<SmallReadOrder>> {
        match try_plan(&order) {
            Some((at_once, work)) => Ok(SmallRead {
                at_once,
                work,
                length: order.length,
                bound: BoundPlan {
                    direct: Direct::Never,
                    ..order.bound
                },
            }),
            None => Err(Box::new(order)),
        }
    }

    /// Carries out the read.
    ///
    /// # Safety
    /// The destination is valid for its length, and no other code touches it until the call
    /// returns. The stream is live.
    pub unsafe fn run(self) -> Result<Report> {
        let (bound, work) = (&self.bound, &self.work);
        let in_steps = matches!(work, Jobs::Range(_));
        let length = self.length;
        // SAFETY: `read` passes memory for the range that it requests; the caller vouches for the
        // rest.
        let report = unsafe {
            self.at_once
                .read(in_steps, |target, range, counters| match work {
                    Jobs::Range(all) => {
                        let part = FileRange {
                            offset: all.offset + range.start,
                            length: range.end - range.start,
                            memory: all.memory,
                        };
                        fetch(bound, part, target, counters)
                    }
                    Jobs::Rows(rows) => rows
                        .iter()
                        .try_for_each(|row| fetch(bound, range_of(row), target, counters)),
                    Jobs::Parts(parts) => {
                        let memory = HostMemory::new(target, length);
                        let reader = HostReader { bound, memory };
                        BUFFERS.with_borrow_mut(|buffers| {
                            let read = parts
                                .iter()
                                .try_for_each(|part| part.read(&reader, target, buffers, counters));
                            buffers.trim();
                            read
                        })
                    }
                })
        };
        report.map_err(|error| match self.bound.path() {
            Some(path) => error.in_file(path),
            None => error,
        })
    }

    /// Carries out the read if it only copies bytes of the page cache into host memory, or fills it, without waiting
    /// for a medium and without decoding. Otherwise returns `None`, with an unknown part of
    /// the destination changed.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub unsafe fn run_cached(self) -> Option<Report> {
        if !self.at_once.is_on_host() {
            return None;
        }
        let bound = &self.bound;
        let not_cached = || Error::new(Kind::Unavailable, "the bytes are not cached");
        let read = |target: *mut u8, range: FileRange, counters: &Counters| {
            let file = bound.file(0)?;
            let side = FileSide::new(&file, Operation::Read, counters);
            // SAFETY: the plan has checked that the range lies inside the memory.
            let is_read = unsafe {
                let to = target.add(range.memory as usize);
                side.read_cached(to, range.offset, range.length)
            };
            is_read.then_some(()).ok_or_else(not_cached)
        };
        // SAFETY: `read` fills the memory that it gets; the caller vouches for the rest.
        let report = unsafe {
            self.at_once
                .read(false, |target, _, counters| match &self.work {
                    Jobs::Range(range) => read(target, *range, counters),
                    Jobs::Rows(rows) => rows
                        .iter()
                        .try_for_each(|row| read(target, range_of(row), counters)),
                    Jobs::Parts(parts) => {
                        let memory = HostMemory::new(target, self.length);
                        let reader = HostReader { bound, memory };
                        parts.iter().try_for_each(|part| match &part.work {
                            PlanJob::Fill(job) => {
                                reader.fill(job);
                                Ok(())
                            }
                            PlanJob::Chunk(job) if let Some(range) = copied_range(bound, job) => {
                                bound.count(job, counters);
                                read(target, range, counters)
                            }
                            PlanJob::Chunk(_) => Err(not_cached()),
                        })
                    }
                })
        };
        report.ok()
    }
}

impl Jobs {
    /// Returns whether the calling thread reads the bytes sooner than workers do.
    fn is_quick(&self, file: &File, bytes: u64) -> bool {
        match self {
            Jobs::Range(range) => is_quick(file, bytes, [(range.offset, range.length)]),
            Jobs::Rows(rows) => {
                let some = rows.iter().step_by(rows.len().div_ceil(ROWS_LOOKED_AT));
                bytes <= MOST_AT_ONCE && are_cached(file, some.map(|row| (row.offset, row.length)))
            }
            Jobs::Parts(parts) => {
                let read = parts.iter().filter_map(|part| match &part.work {
                    PlanJob::Chunk(job) if part.cached.is_none() => {
                        Some((job.address, job.stored_size))
                    }
                    PlanJob::Chunk(_) | PlanJob::Fill(_) => None,
                });
                // Workers read several chunks of a medium at the same time.
                let are_few = read.clone().take(MOST_CHUNKS + 1).count() <= MOST_CHUNKS;
                is_quick(file, bytes, read.clone()) && (are_few || are_cached(file, read))
            }
        }
    }

    /// Returns the bytes of memory that are read or filled.
    fn bytes(&self, bound: &BoundPlan) -> u64 {
        match self {
            Jobs::Range(range) => range.length,
            Jobs::Rows(rows) => rows.iter().map(|row| row.length).sum(),
            Jobs::Parts(parts) => parts.iter().map(|part| part.bytes(bound)).sum(),
        }
    }

    /// Returns whether a chunk is to be decoded.
    fn decodes(&self) -> bool {
        match self {
            Jobs::Range(_) | Jobs::Rows(_) => false,
            Jobs::Parts(parts) => parts.iter().any(Part::decodes),
        }
    }
}

impl Part {
    fn bytes(&self, bound: &BoundPlan) -> u64 {
        match &self.work {
            PlanJob::Chunk(job) => job.bytes(&bound.plan),
            PlanJob::Fill(job) => job.bytes(&bound.plan),
        }
    }

    fn decodes(&self) -> bool {
        matches!(&self.work, PlanJob::Chunk(job) if !job.is_plain) && self.cached.is_none()
    }

    /// Reads or fills the selected elements.
    fn read(
        &self,
        reader: &HostReader<'_>,
        target: *mut u8,
        buffers: &mut WorkerBuffers,
        counters: &Counters,
    ) -> Result<()> {
        let bound = reader.bound;
        match (&self.work, &self.cached) {
            (PlanJob::Fill(job), _) => {
                reader.fill(job);
                Ok(())
            }
            (PlanJob::Chunk(job), Some(decoded)) => {
                reader.place(job, decoded);
                Ok(())
            }
            (PlanJob::Chunk(job), None) => {
                if let Some(range) = copied_range(bound, job) {
                    bound.count(job, counters);
                    return fetch(bound, range, target, counters)
                        .map_err(|e| bound.plan.name_in(job, e));
                }
                if let Some(bytes) = bound.read_to_cache(job, counters) {
                    bound.count(job, counters);
                    reader.place(job, &bytes);
                    return Ok(());
                }
                let jobs = std::slice::from_ref(job);
                reader.read(jobs, buffers, counters).map(drop)
            }
        }
    }
}

/// Returns how one thread reads, and its work. Returns `None` if workers are faster, or if the
/// order is invalid.
fn try_plan(order: &SmallReadOrder) -> Option<(AtOnce, Jobs)> {
    let SmallReadOrder {
        bound,
        length,
        memory,
        options,
        ..
    } = order;
    if *length == 0 || *length > MOST_CACHED_AT_ONCE {
        return None;
    }
    let plan = &bound.plan;
    let is_filtered = !plan.pipeline().filters.is_empty();
    let is_elsewhere = plan.is_in_memory() || plan.is_in_segments();
    if is_elsewhere || is_filtered && options.decode == Some(Decoder::Gpu) {
        return None;
    }
    let work = jobs(bound)?;
    if *length > MOST_AT_ONCE && work.decodes() {
        return None;
    }
    let file = bound.file(0).ok()?;
    if !work.is_quick(&file, *length) {
        return None;
    }
    // One copy to the GPU covers the whole destination, so all of it must be read.
    if memory.context.is_some() && !(order.is_dense && work.bytes(bound) == *length) {
        return None;
    }
    let place = (order.address, *length);
    let at_once = AtOnce::new(&file, options, memory.clone(), place, order.after)?;
    Some((at_once, work))
}

/// Returns the work of the read; `None` if it is too much for one thread, or if planning fails.
fn jobs(bound: &BoundPlan) -> Option<Jobs> {
    let plan = &bound.plan;
    if is_copied(bound)
        && let Some(range) = plan.one_range()
    {
        return Some(Jobs::Range(range));
    }
    if let Some(rows) = few_rows(bound) {
        return Some(Jobs::Rows(rows));
    }
    let mut parts = Vec::new();
    let (mut decoded, mut decoding, mut plain, mut reads) = (0, 0, 0, 0);
    for work in plan.works() {
        let work = work.ok()?;
        let part = Part {
            cached: match &work {
                PlanJob::Chunk(job) => bound.cached(job).or_else(|| bound.cached_plain(job)),
                PlanJob::Fill(_) => None,
            },
            work,
        };
        match &part.work {
            PlanJob::Chunk(job) if job.is_plain && part.cached.is_none() => {
                plain += job.span.1 - job.span.0;
                reads += 1;
            }
            PlanJob::Chunk(job) if part.decodes() => {
                decoded += job.decoded_size;
                decoding += 1;
            }
            _ => {}
        }
        parts.push(part);
        if parts.len() > MOST_PARTS
            || decoding > MOST_CHUNKS
            || decoding > 1 && decoded > MOST_DECODED
            || reads > MOST_CHUNKS && (reads > MOST_READS || plain > MOST_CACHED_AT_ONCE)
            || plain > MOST_PLAIN
        {
            return None;
        }
    }
    Some(Jobs::Parts(parts))
}

/// Returns whether the bytes in memory are those of the file.
fn is_copied(bound: &BoundPlan) -> bool {
    matches!(bound.conversion, TypeConversion::Copy) && bound.plan.element().is_whole()
}

/// Returns the range of the file from which the bytes of a chunk are copied, if they are one range.
fn copied_range(bound: &BoundPlan, job: &ChunkJob) -> Option<FileRange> {
    let range = job.one_range(&bound.plan)?;
    (job.is_plain && is_copied(bound)).then_some(range)
}

fn range_of(row: &Extent) -> FileRange {
    FileRange {
        offset: row.offset,
        length: row.length,
        memory: row.memory as u64,
    }
}

/// Reads a range of the file to its offset in `target`.
fn fetch(bound: &BoundPlan, range: FileRange, target: *mut u8, counters: &Counters) -> Result<()> {
    let file = bound.file(0)?;
    let side = FileSide::new(&file, Operation::Read, counters);
    // SAFETY: the plan has checked that the range lies inside the memory.
    unsafe {
        let to = target.add(range.memory as usize);
        side.move_buffered(to, range.offset, range.length)
    }
}
