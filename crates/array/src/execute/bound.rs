//! A plan together with its files and the settings of its execution.

use std::fmt;
use std::sync::Arc;

use penstock_codec::convert::TypeConversion;
use penstock_codec::{CodecError, Fault};
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::file::side::{Direct, FileSide};
use penstock_engine::report::{Counters, Path};

use super::buffer::{Buffer, no_memory, zeroed};
use crate::{ArrayChunks, ChunkJob, FileRange, Plan, PlanJob};

/// A plan bound to its files: all or part of an array that moves between a file and memory.
#[derive(Debug)]
pub struct BoundPlan {
    /// The transfer.
    pub plan: Arc<Plan>,
    /// The file of the array, or those of its segments in order. A file that cannot be opened is an
    /// error only when it is read.
    pub files: Vec<PlanFile>,
    /// Conversion of the moved part of each element.
    pub conversion: TypeConversion,
    /// Whether chunks are read with direct I/O, bypassing the page cache.
    pub direct: Direct,
    /// The elements, if they are in memory already.
    pub given: Option<InMemory>,
    /// The use of the cache of decoded chunks.
    pub cache: Option<PlanCache>,
}

/// How a plan uses the cache of decoded chunks.
#[derive(Clone, Debug)]
pub struct PlanCache {
    chunks: Arc<ArrayChunks>,
    /// Whether chunks of which the plan reads a part are added, because the next plan may read another.
    keeps_parts: bool,
    /// Whether chunks that were read recently are added.
    keeps_reread: bool,
}

/// A file of a plan.
#[derive(Clone, Debug)]
pub enum PlanFile {
    /// The file is open.
    Open(Arc<File>),
    /// The file is opened by the worker that needs it, because a plan may have more files than the
    /// process may have descriptors.
    OnDemand(Arc<dyn OnDemand>),
    /// The file cannot be opened.
    Missing(Error),
}

/// Opens a file when it is needed.
pub trait OnDemand: fmt::Debug + Send + Sync {
    /// Opens the file, or returns it if it is open. The caller drops it after its next use.
    fn open(&self) -> Result<Arc<File>>;

    /// The path of the file for errors.
    fn path(&self) -> &std::path::Path;

    /// Device and inode.
    fn identity(&self) -> (u64, u64);
}

impl From<Arc<File>> for PlanFile {
    fn from(file: Arc<File>) -> PlanFile {
        PlanFile::Open(file)
    }
}

impl PlanFile {
    /// Returns the open file.
    pub fn open(&self) -> Result<Arc<File>> {
        match self {
            PlanFile::Open(file) => Ok(Arc::clone(file)),
            PlanFile::OnDemand(file) => file.open(),
            PlanFile::Missing(error) => Err(error.clone()),
        }
    }

    /// Returns the path of the file for errors; `None` if the file cannot be opened.
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            PlanFile::Open(file) => Some(file.path()),
            PlanFile::OnDemand(file) => Some(file.path()),
            PlanFile::Missing(_) => None,
        }
    }
}

/// Elements that the caller has read into memory.
#[derive(Clone, Debug)]
pub struct InMemory {
    /// All elements in C order.
    pub bytes: Arc<Vec<u8>>,
    /// The path that reports name for these bytes.
    pub path: Path,
}

/// The stored bytes of some jobs.
pub struct Stored<'a> {
    bytes: &'a [u8],
    start: u64,
    origin: Origin,
}

/// How stored bytes reached memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Buffered,
    Direct,
    InMemory(Path),
}

impl Stored<'_> {
    /// Returns the path that the bytes took: one of the two arguments, or that of elements that
    /// were in memory already.
    pub fn path(&self, buffered: Path, direct: Path) -> Path {
        match self.origin {
            Origin::Buffered => buffered,
            Origin::Direct => direct,
            Origin::InMemory(path) => path,
        }
    }

    /// Returns the bytes `from..to` of a job's stored bytes.
    pub fn of(&self, job: &ChunkJob, (from, to): (u64, u64)) -> &[u8] {
        let start = (job.address + from - self.start) as usize;
        &self.bytes[start..start + (to - from) as usize]
    }
}

impl BoundPlan {
    /// Binds a plan to the file of its array, or to those of the array's segments.
    pub fn new(
        plan: impl Into<Arc<Plan>>,
        files: Vec<PlanFile>,
        conversion: TypeConversion,
        direct: Direct,
    ) -> BoundPlan {
        BoundPlan {
            plan: plan.into(),
            files,
            conversion,
            direct,
            given: None,
            cache: None,
        }
    }

    /// Binds the plan of an array that is in memory. A read needs its elements.
    pub fn in_memory(plan: Plan, given: Option<InMemory>) -> BoundPlan {
        BoundPlan {
            given,
            ..BoundPlan::new(plan, Vec::new(), TypeConversion::Copy, Direct::Never)
        }
    }

    /// Has chunks come from a cache and go into it: filtered ones, and, if the calling thread reads them, others of
    /// which the selected elements are scattered.
    ///
    /// If the plan touches a single chunk, or if its chunks take at most half of the cache, filtered chunks that
    /// are read in part are added at once. If its chunks fit into the cache, those that were read recently are
    /// added, too.
    pub fn keep_in(&mut self, chunks: Arc<ArrayChunks>) {
        let plan = &self.plan;
        if !plan.is_chunked() {
            return;
        }
        let touched = plan.touched();
        let bytes = touched.saturating_mul(plan.decoded_size());
        self.cache = Some(PlanCache {
            keeps_parts: touched == 1 || chunks.has_room_beside(bytes),
            keeps_reread: chunks.has_room_for(bytes),
            chunks,
        });
    }

    /// Returns the decoded bytes of a job's chunk, if they are in the cache.
    pub fn cached(&self, job: &ChunkJob) -> Option<Arc<Vec<u8>>> {
        let cache = self.cache.as_ref().filter(|_| !job.is_plain)?;
        cache.chunks.find(job.chunk)
    }

    /// Does what [`cached`](Self::cached) does for a chunk without filters of which scattered elements are selected.
    pub fn cached_plain(&self, job: &ChunkJob) -> Option<Arc<Vec<u8>>> {
        let cache = self.cache.as_ref().filter(|_| job.is_sparse(&self.plan))?;
        cache.chunks.find(job.chunk)
    }

    /// Reads the whole chunk of such a job, and adds it to the cache, if it was read recently and is stored whole.
    pub fn read_to_cache(&self, job: &ChunkJob, counters: &Counters) -> Option<Arc<Vec<u8>>> {
        let cache = self.cache.as_ref().filter(|_| job.is_sparse(&self.plan))?;
        if !cache.keeps_reread || !cache.chunks.was_read_recently(job.chunk) {
            cache.chunks.note_read(job.chunk);
            return None;
        }
        let mut bytes = zeroed(job.stored_size as usize)?;
        self.fetch_into((job, 0), counters, &mut bytes).ok()?;
        Some(cache.chunks.add(job.chunk, bytes))
    }

    /// Returns whether the cache has the chunk of a job.
    pub fn is_cached(&self, job: &ChunkJob) -> bool {
        let cache = self.cache.as_ref().filter(|_| !job.is_plain);
        cache.is_some_and(|cache| cache.chunks.has(job.chunk))
    }

    /// Returns whether a job's chunk is to be added to the cache when it is decoded. Other requests may
    /// change the answer.
    pub fn is_to_cache(&self, job: &ChunkJob) -> bool {
        self.cache.as_ref().is_some_and(|cache| {
            !job.is_plain
                && cache.chunks.has_room_for(job.decoded_size)
                && (cache.keeps_parts && !job.is_all(&self.plan)
                    || cache.keeps_reread && cache.chunks.was_read_recently(job.chunk))
        })
    }

    /// Adds the decoded bytes of a job's chunk to the cache.
    pub fn add_to_cache(&self, job: &ChunkJob, decoded: Vec<u8>) {
        if let Some(cache) = &self.cache {
            cache.chunks.add(job.chunk, decoded);
        }
    }

    /// Records that a job's chunk was decoded and is not in the cache.
    pub fn note_read(&self, job: &ChunkJob) {
        if let Some(cache) = &self.cache
            && !job.is_plain
        {
            cache.chunks.note_read(job.chunk);
        }
    }

    /// Returns the part of a job's stored bytes that is needed: all of them if they are decoded,
    /// else the selected part.
    pub fn needed(&self, job: &ChunkJob) -> (u64, u64) {
        if job.is_plain {
            job.span
        } else {
            (0, job.stored_size)
        }
    }

    /// Reads the needed bytes of some jobs in one call. The jobs must be sorted by address.
    pub fn fetch<'b>(
        &'b self,
        jobs: &[ChunkJob],
        counters: &Counters,
        buffer: &'b mut Buffer,
    ) -> Result<Stored<'b>> {
        let start = jobs.iter().map(|job| self.range(job).0).min().unwrap_or(0);
        let end = jobs.iter().map(|job| self.range(job).1).max().unwrap_or(0);
        self.fetch_range(start, end, counters, buffer)
            .map_err(|error| self.unreadable(jobs, error))
    }

    /// Returns whether the needed bytes of a job are read through the page cache unchanged, so that
    /// they can be read into any memory.
    pub fn comes_straight(&self, job: &ChunkJob, counters: &Counters) -> Result<bool> {
        if !job.is_plain || self.given.is_some() || self.plan.is_in_segments() {
            return Ok(false);
        }
        let (start, end) = self.range(job);
        let file = self.file(0)?;
        Ok(!self.side(&file, counters).goes_direct(start, end - start))
    }

    /// Reads the bytes of such a job from the offset `from` of its chunk on.
    pub fn fetch_into(
        &self,
        (job, from): (&ChunkJob, u64),
        counters: &Counters,
        to: &mut [u8],
    ) -> Result<()> {
        let (start, end) = (job.address + from, job.address + from + to.len() as u64);
        assert!(end <= job.address + job.stored_size);
        let file = self.file(0)?;
        let side = self.side(&file, counters);
        // SAFETY: the slice is exclusive and as long as what is read.
        unsafe { side.move_buffered(to.as_mut_ptr(), start, end - start) }
            .map_err(|error| self.unreadable(std::slice::from_ref(job), error))
    }

    /// Returns the file range that a job needs (start, end).
    fn range(&self, job: &ChunkJob) -> (u64, u64) {
        let (from, to) = self.needed(job);
        (job.address + from, job.address + to)
    }

    /// Names the chunk in an error of reading several jobs. If the file is too short, that is the
    /// first chunk beyond its end.
    fn unreadable(&self, jobs: &[ChunkJob], error: Error) -> Error {
        let size = match error.kind() {
            Kind::EndOfFile => self.file(0).and_then(|file| file.size()).unwrap_or(0),
            _ => 0,
        };
        let first = jobs.iter().find(|job| self.range(job).1 > size);
        match first.or(jobs.first()) {
            Some(job) => self.plan.name_in(job, error),
            None => error,
        }
    }

    fn fetch_range<'b>(
        &'b self,
        start: u64,
        end: u64,
        counters: &Counters,
        buffer: &'b mut Buffer,
    ) -> Result<Stored<'b>> {
        if let Some(given) = &self.given {
            return Ok(Stored {
                bytes: &given.bytes[start as usize..end as usize],
                start,
                origin: Origin::InMemory(given.path),
            });
        }
        if self.plan.is_in_segments() {
            return self.fetch_segments(start, end, counters, buffer);
        }
        let file = self.file(0)?;
        let side = self.side(&file, counters);
        let align = side.file.direct_alignment();
        let direct = side.goes_direct(start, end - start);
        let head = if direct { start % align } else { 0 };
        let needed = head + (end - start);
        let room = if direct {
            needed.next_multiple_of(align)
        } else {
            needed
        };
        let length = usize::try_from(room).map_err(|_| no_memory(usize::MAX))?;
        let bytes = buffer.room(length)?;
        let origin = if direct {
            // SAFETY: the memory is this worker's own, page-aligned, and `room` bytes long.
            if unsafe { side.move_direct(bytes.as_mut_ptr(), start - head, room, needed)? } {
                Origin::Direct
            } else {
                Origin::Buffered
            }
        } else {
            // SAFETY: as above.
            unsafe { side.move_buffered(bytes.as_mut_ptr(), start, needed)? };
            Origin::Buffered
        };
        Ok(Stored {
            bytes: &bytes[head as usize..needed as usize],
            start,
            origin,
        })
    }

    /// Counts a chunk that was read.
    pub fn count(&self, job: &ChunkJob, counters: &Counters) {
        let (from, to) = self.needed(job);
        counters.chunks(1, to - from);
        if !job.is_plain {
            counters.decoded_cpu(job.decoded_size);
        }
    }

    /// Returns the path of the file for errors.
    pub fn path(&self) -> Option<&std::path::Path> {
        self.files.iter().find_map(PlanFile::path)
    }

    /// Returns one of the files, opened.
    pub fn file(&self, at: usize) -> Result<Arc<File>> {
        match self.files.get(at) {
            Some(file) => file.open(),
            None => Err(Error::new(Kind::Internal, "a plan has no file")),
        }
    }

    /// Returns whether the plan needs bytes of its one file past the first `size`.
    pub fn reaches_beyond(&self, size: u64) -> Result<bool> {
        for work in self.plan.works() {
            match work {
                Ok(PlanJob::Chunk(job)) if self.range(&job).1 > size => return Ok(true),
                // All other errors will be reported by the read itself.
                Err(error) if error.kind() == Kind::Memory => return Err(error),
                _ => {}
            }
        }
        Ok(false)
    }

    fn side<'a>(&self, file: &'a Arc<File>, counters: &'a Counters) -> FileSide<'a> {
        FileSide {
            direct: self.direct,
            ..FileSide::new(file, Operation::Read, counters)
        }
    }

    /// Reads from the segments' files. A file that ends early reads as zeros.
    fn fetch_segments<'b>(
        &self,
        start: u64,
        end: u64,
        counters: &Counters,
        buffer: &'b mut Buffer,
    ) -> Result<Stored<'b>> {
        let length = usize::try_from(end - start).map_err(|_| no_memory(usize::MAX))?;
        let bytes = buffer.room(length)?;
        bytes.fill(0);
        let range = FileRange {
            offset: start,
            length: end - start,
            memory: 0,
        };
        for (slot, part) in self.plan.segment_ranges(range) {
            let file = self
                .file(slot)
                .map_err(|error| error.over(part.offset, part.length))?;
            let size = file.size()?;
            let there = part.length.min(size.saturating_sub(part.offset));
            let side = FileSide::new(&file, Operation::Read, counters);
            let target = &mut bytes[part.memory as usize..(part.memory + there) as usize];
            // SAFETY: the memory is this worker's own and as long as what is read.
            unsafe { side.move_buffered(target.as_mut_ptr(), part.offset, there)? };
        }
        Ok(Stored {
            bytes,
            start,
            origin: Origin::Buffered,
        })
    }

    /// Names the chunk in a decoding error.
    pub fn undecodable(&self, job: &ChunkJob, error: &CodecError) -> Error {
        let cause = Error::new(kind_of(error), error.to_string()).remedy(error.remedy());
        let error = self.plan.name_in(job, cause);
        match self.files.first().and_then(PlanFile::path) {
            Some(path) => error.at(path, job.address, job.stored_size),
            None => error,
        }
    }

    /// Fails for a chunk whose claimed decoded size is more than its filters can produce from its
    /// stored bytes. This check precedes the allocation of memory for the chunk.
    pub fn refuse_bomb(&self, job: &ChunkJob) -> Result<()> {
        let Some(most) = self.plan.pipeline().most_decoded(job.mask, job.stored_size) else {
            return Ok(());
        };
        if job.decoded_size <= most {
            return Ok(());
        }
        let error = CodecError::new(
            "pipeline",
            format!(
                "{} stored bytes cannot decode to {}",
                job.stored_size, job.decoded_size
            ),
        );
        Err(self.undecodable(job, &error))
    }
}

/// The kind of the error of a transfer in which a filter cannot decode or encode a chunk.
pub(super) fn kind_of(error: &CodecError) -> Kind {
    match error.kind {
        Fault::Memory => Kind::Memory,
        Fault::Input | Fault::Unsupported => Kind::Io,
    }
}
