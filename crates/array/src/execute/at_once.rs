//! Small reads that the calling thread carries out itself.

use std::cell::RefCell;
use std::sync::Arc;

use penstock_codec::convert::TypeConversion;
use penstock_engine::Stream;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;
use penstock_engine::file::side::{Direct, FileSide};
use penstock_engine::memory::Memory;
use penstock_engine::options::{Decoder, Options};
use penstock_engine::report::{Counters, Report};
use penstock_engine::request::{
    AtOnce, MOST_AT_ONCE, MOST_CACHED_AT_ONCE, MOST_CHUNKS, MOST_DECODED, MOST_PLAIN, is_quick,
};

use super::bound::BoundPlan;
use super::memory::HostMemory;
use super::read::{HostReader, Room};
use crate::{ChunkCache, ChunkJob, ChunkKey, FileRange, PlanJob};

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
    /// The cache of decoded chunks, and the number of the array in it.
    pub cache: Option<(Arc<ChunkCache>, u64)>,
}

/// A read that [`prepare`](Self::prepare) accepted for the calling thread.
pub struct SmallRead {
    bound: BoundPlan,
    work: Jobs,
    at_once: AtOnce,
    length: u64,
    cache: Option<(Arc<ChunkCache>, u64)>,
}

/// The work of a small read.
enum Jobs {
    /// One range of the file.
    Range(FileRange),
    /// Parts of a few chunks or blocks.
    Parts(Vec<PlanJob>),
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
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
                cache: order.cache,
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
        let (bound, work, cache) = (&self.bound, &self.work, &self.cache);
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
                    Jobs::Parts(works) => {
                        let memory = HostMemory::new(target, length);
                        let reader = HostReader { bound, memory };
                        ROOM.with_borrow_mut(|room| {
                            let cache = cache.as_ref();
                            let read = works.iter().try_for_each(|work| {
                                read_job(&reader, work, target, (&mut *room, cache, counters))
                            });
                            room.trim();
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

    /// Carries out the read if it only copies bytes of the page cache into host memory, without
    /// waiting for a medium and without decoding. Otherwise returns `None`, with an unknown part of
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
                    Jobs::Parts(works) => works.iter().try_for_each(|work| match work {
                        PlanJob::Chunk(job) if let Some(range) = copied_range(bound, job) => {
                            bound.count(job, counters);
                            read(target, range, counters)
                        }
                        PlanJob::Chunk(_) | PlanJob::Fill(_) => Err(not_cached()),
                    }),
                })
        };
        report.ok()
    }
}

impl Jobs {
    /// Returns the ranges of the file that are read, offset and length.
    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let (one, works): (_, &[PlanJob]) = match self {
            Jobs::Range(range) => (Some((range.offset, range.length)), &[]),
            Jobs::Parts(works) => (None, works),
        };
        one.into_iter()
            .chain(works.iter().filter_map(|work| match work {
                PlanJob::Chunk(job) => Some((job.address, job.stored_size)),
                PlanJob::Fill(_) => None,
            }))
    }

    /// Returns the bytes of memory that are read or filled; `None` if some bytes stay unchanged.
    fn bytes(&self, bound: &BoundPlan) -> Option<u64> {
        match self {
            Jobs::Range(range) => Some(range.length),
            Jobs::Parts(works) => works.iter().try_fold(0, |sum, work| match work {
                PlanJob::Chunk(job) => Some(sum + job.bytes(&bound.plan)),
                PlanJob::Fill(job) => Some(sum + job.bytes(&bound.plan)),
            }),
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
    let is_for_many = *length > MOST_AT_ONCE || options.decode == Some(Decoder::Gpu);
    if is_elsewhere || is_filtered && is_for_many {
        return None;
    }
    let work = jobs(bound, order.cache.as_ref())?;
    let file = bound.file(0).ok()?;
    if !is_quick(&file, *length, work.ranges()) {
        return None;
    }
    // One copy to the GPU covers the whole destination, so all of it must be read.
    if memory.context.is_some() && !(order.is_dense && work.bytes(bound)? == *length) {
        return None;
    }
    let place = (order.address, *length);
    let at_once = AtOnce::new(&file, options, memory.clone(), place, order.after)?;
    Some((at_once, work))
}

/// Returns the work of the read; `None` if it is too much for one thread, or if planning fails.
fn jobs(bound: &BoundPlan, cache: Option<&(Arc<ChunkCache>, u64)>) -> Option<Jobs> {
    let plan = &bound.plan;
    if is_copied(bound)
        && let Some(range) = plan.one_range()
    {
        return Some(Jobs::Range(range));
    }
    let mut works = Vec::new();
    let (mut decoded, mut chunks, mut plain) = (0, 0, 0);
    for work in plan.works() {
        let work = work.ok()?;
        if let PlanJob::Chunk(job) = &work
            && job.is_plain
        {
            plain += job
                .one_range(plan)
                .map_or(job.stored_size, |part| part.length);
            if plain > MOST_PLAIN {
                return None;
            }
        }
        if let PlanJob::Chunk(job) = &work
            && !job.is_plain
            && cache.is_none_or(|(cache, array)| cache.find(key(*array, job)).is_none())
        {
            decoded += job.decoded_size;
            chunks += 1;
        }
        works.push(work);
        if works.len() > MOST_CHUNKS || chunks > 1 && decoded > MOST_DECODED {
            return None;
        }
    }
    Some(Jobs::Parts(works))
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

fn key(array: u64, job: &ChunkJob) -> ChunkKey {
    let chunk = job.chunk;
    ChunkKey { array, chunk }
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

/// Reads or fills the selected elements of one chunk.
fn read_job(
    reader: &HostReader<'_>,
    work: &PlanJob,
    target: *mut u8,
    (room, cache, counters): (&mut Room, Option<&(Arc<ChunkCache>, u64)>, &Counters),
) -> Result<()> {
    let bound = reader.bound;
    let job = match work {
        PlanJob::Fill(job) => {
            reader.fill(job);
            return Ok(());
        }
        PlanJob::Chunk(job) => job,
    };
    if let Some(range) = copied_range(bound, job) {
        bound.count(job, counters);
        return fetch(bound, range, target, counters).map_err(|e| bound.plan.name_in(job, e));
    }
    let is_part = !job.is_plain && job.whole(&bound.plan).is_none();
    if let Some((cache, array)) = cache
        && is_part
        && cache.takes(job.decoded_size)
    {
        let key = key(*array, job);
        let decoded = match cache.find(key) {
            Some(decoded) => decoded,
            None => {
                let decoded = Arc::new(reader.read_whole(job, room, counters)?);
                cache.keep(key, &decoded);
                decoded
            }
        };
        reader.place(job, &decoded);
        return Ok(());
    }
    let jobs = std::slice::from_ref(job);
    reader.read(jobs, room, counters).map(drop)
}
