//! A plan with the files, and all else, that it takes to carry it out.

use std::sync::Arc;

use penstock_codec::CodecError;
use penstock_codec::convert::Change;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::File;
use penstock_engine::file::position::Operation;
use penstock_engine::file::side::{Direct, FileSide};
use penstock_engine::report::{Counters, Path};

use super::buffer::{Buffer, no_memory};
use crate::{ChunkJob, FileRange, Plan, Work};

/// A plan bound to its files: an array, or a part of one, on its way between a file and memory.
#[derive(Debug)]
pub struct BoundPlan {
    /// What is moved.
    pub plan: Arc<Plan>,
    /// The file of the array; those of its segments, in their order. One that cannot be opened is an
    /// error only if something is read from it.
    pub files: Vec<Result<Arc<File>>>,
    /// What happens to the part of each element that is moved.
    pub change: Change,
    /// Whether chunks are read past the page cache.
    pub direct: Direct,
    /// The elements, where they are in memory already.
    pub given: Option<Given>,
}

/// Elements that somebody else has read.
#[derive(Clone, Debug)]
pub struct Given {
    /// All of them, in C order.
    pub bytes: Arc<[u8]>,
    /// How reports call the way that they came.
    pub path: Path,
}

/// What was read for some jobs.
pub struct Stored<'a> {
    bytes: &'a [u8],
    start: u64,
    came: Came,
}

/// How stored bytes came into memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Buffered,
    Direct,
    Given(Path),
}

impl Stored<'_> {
    /// How the bytes came: one of the two paths, or that of elements which were in memory.
    pub fn path(&self, buffered: Path, direct: Path) -> Path {
        match self.came {
            Came::Buffered => buffered,
            Came::Direct => direct,
            Came::Given(path) => path,
        }
    }

    /// The stored bytes of a job, from `from` to `to` of them.
    pub fn of(&self, job: &ChunkJob, (from, to): (u64, u64)) -> &[u8] {
        let start = (job.address + from - self.start) as usize;
        &self.bytes[start..start + (to - from) as usize]
    }
}

impl BoundPlan {
    /// The stored bytes of a job that are needed: all that is to be decoded, or else the part that
    /// is selected.
    pub fn needed(&self, job: &ChunkJob) -> (u64, u64) {
        if job.is_plain {
            job.span
        } else {
            (0, job.stored_size)
        }
    }

    /// Reads what some jobs need by one call. Their addresses ascend.
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

    /// Whether what a job needs comes through the page cache as it is, so that it can be read to
    /// anywhere.
    pub fn comes_straight(&self, job: &ChunkJob, counters: &Counters) -> Result<bool> {
        if !job.is_plain || self.given.is_some() || self.plan.is_in_segments() {
            return Ok(false);
        }
        let (start, end) = self.range(job);
        Ok(!self.side(counters)?.goes_direct(start, end - start))
    }

    /// Reads what such a job needs into memory of its length.
    pub fn fetch_into(&self, job: &ChunkJob, counters: &Counters, to: &mut [u8]) -> Result<()> {
        let (start, end) = self.range(job);
        assert_eq!(to.len() as u64, end - start);
        let side = self.side(counters)?;
        // SAFETY: the memory is the caller's own and as long as what is read.
        unsafe { side.move_buffered(to.as_mut_ptr(), start, end - start) }
            .map_err(|error| self.unreadable(std::slice::from_ref(job), error))
    }

    /// What a job needs, as offsets in the file.
    fn range(&self, job: &ChunkJob) -> (u64, u64) {
        let (from, to) = self.needed(job);
        (job.address + from, job.address + to)
    }

    /// An error of bound several jobs, with the chunk that it is about: where a file is too
    /// short, the first that it has no longer.
    fn unreadable(&self, jobs: &[ChunkJob], error: Error) -> Error {
        let size = match self.files.first() {
            Some(Ok(file)) if error.kind() == Kind::EndOfFile => file.size().unwrap_or(0),
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
                came: Came::Given(given.path),
            });
        }
        if self.plan.is_in_segments() {
            return self.fetch_segments(start, end, counters, buffer);
        }
        let side = self.side(counters)?;
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
        let came = if direct {
            // SAFETY: the memory is this worker's own, page-aligned, and of this length.
            match unsafe { side.move_direct(bytes.as_mut_ptr(), start - head, room, needed)? } {
                true => Came::Direct,
                false => Came::Buffered,
            }
        } else {
            // SAFETY: as above.
            unsafe { side.move_buffered(bytes.as_mut_ptr(), start, needed)? };
            Came::Buffered
        };
        Ok(Stored {
            bytes: &bytes[head as usize..needed as usize],
            start,
            came,
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

    /// The file that errors name.
    pub fn path(&self) -> Option<&std::path::Path> {
        let file = self.files.iter().flatten().next()?;
        Some(file.path())
    }

    /// One of its files.
    pub fn file(&self, at: usize) -> Result<&Arc<File>> {
        match self.files.get(at) {
            Some(Ok(file)) => Ok(file),
            Some(Err(error)) => Err(error.clone()),
            None => Err(Error::new(Kind::Internal, "a plan came without its file")),
        }
    }

    /// Whether it needs bytes of its one file that lie behind the first `size`.
    pub fn reaches_beyond(&self, size: u64) -> Result<bool> {
        for work in self.plan.works() {
            match work {
                Ok(Work::Chunk(job)) if self.range(&job).1 > size => return Ok(true),
                // The other errors are those of the read itself.
                Err(error) if error.kind() == Kind::Memory => return Err(error),
                _ => {}
            }
        }
        Ok(false)
    }

    fn side<'a>(&'a self, counters: &'a Counters) -> Result<FileSide<'a>> {
        Ok(FileSide {
            file: self.file(0)?,
            operation: Operation::Read,
            direct: self.direct,
            counters,
            gate: None,
        })
    }

    /// Files of segments that end early read as zeros.
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
            let side = FileSide {
                file,
                operation: Operation::Read,
                direct: Direct::Never,
                counters,
                gate: None,
            };
            let target = &mut bytes[part.memory as usize..(part.memory + there) as usize];
            // SAFETY: the memory is this worker's own and as long as what is read.
            unsafe { side.move_buffered(target.as_mut_ptr(), part.offset, there)? };
        }
        Ok(Stored {
            bytes,
            start,
            came: Came::Buffered,
        })
    }

    /// An error of decoding, with the chunk that it is about.
    pub fn undecodable(&self, job: &ChunkJob, error: &CodecError) -> Error {
        let cause = Error::new(Kind::Io, error.to_string())
            .remedy("the chunk is damaged: restore the file from a copy");
        let error = self.plan.name_in(job, cause);
        match self.files.first() {
            Some(Ok(file)) => error.at(file.path(), job.address, job.stored_size),
            _ => error,
        }
    }

    /// Refuses a chunk that claims to decode to more than its filters can make of what is stored,
    /// before memory is taken for it.
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
