//! Plans: the file ranges and the strided boxes of memory that follow from an array, a selection
//! and a memory layout. A plan is plain data, evaluated chunk by chunk on demand, and serves reads
//! and writes alike.
//!
//! The plan of a selection is never a list of elements. A [`Works`] iterator walks over the chunks
//! that the selection touches, in order of their numbers. For each chunk it computes the segments
//! of the selection inside it, looks up the stored bytes, and yields a job: a file range, a filter
//! mask, and a placement from which [`boxes`](crate::boxes) follow. Neighbouring chunks share the
//! segments of an axis, so a regular selection costs a few additions a chunk, and memory does not
//! grow with the selection. Contiguous data are cut into blocks that are treated as chunks.

mod blocks;
mod change;
mod element;
mod holes;
mod job;
mod matched;
mod memory;
mod memory_side;
mod one_range;
mod runs_by_chunk;
mod sizes;
mod stored;
mod walk;

use std::sync::Arc;

use penstock_codec::Pipeline;
use penstock_engine::error::{Error, Kind, Result};
use penstock_engine::file::position::Operation;

use crate::boxes::{Geometry, Placement};
use crate::chunks::{ChunkGrid, ChunkTable, StoredChunk};
use crate::selection::{Axis, Selection};
pub use change::{Before, Changed, Changes};
pub use element::ElementMapping;
pub use holes::Holes;
use job::Stored;
pub use job::{ChunkJob, FileRange, FillJob, PlanJob};
pub use matched::{in_order, match_selections};
pub use memory::MemoryLayout;
pub use memory_side::MemorySide;
pub use sizes::{MemorySize, StoredSize};
pub use stored::{FileSegment, Source, StoredArray, bytes, in_dataset};
pub use walk::{PlanJobs, Window, Windows};

/// The filter mask that skips every filter.
pub const NO_FILTERS: u32 = u32::MAX;

/// A transfer between an array in a file and memory, and its direction. Workers share it.
#[derive(Clone, Debug)]
pub struct Plan {
    direction: Operation,
    name: String,
    source: Source,
    grid: ChunkGrid,
    selection: Selection,
    geometry: Geometry,
    element: ElementMapping,
    pipeline: Pipeline,
    unfiltered_edges: bool,
    fill: Option<Vec<u8>>,
    decoded_size: u64,
}

impl Plan {
    /// Plans the transfer of the elements of `selection`, which lie in memory according to
    /// `memory`.
    ///
    /// In a write, elements may overlap in memory, so that several get one value. In a read, if
    /// several elements of [`Selection::Runs`] have one position, the last one is read, and a
    /// stride of 0 is an error. Errors name the array.
    pub fn new(
        array: &StoredArray,
        selection: Selection,
        memory: &MemoryLayout,
        element: ElementMapping,
        direction: Operation,
    ) -> Result<Plan> {
        Plan::make(array, selection, memory, element, direction)
            .map_err(|error| in_dataset(error, &array.name))
    }

    fn make(
        array: &StoredArray,
        selection: Selection,
        memory: &MemoryLayout,
        element: ElementMapping,
        direction: Operation,
    ) -> Result<Plan> {
        let (stored, in_memory) = (element.stored(direction), element.memory(direction));
        let (file_element, memory_element) = (stored.0, in_memory.0);
        if stored != array.element {
            return Err(Error::invalid(
                "the plan's element size differs from that of the array",
            ));
        }
        let is_inside = element
            .offset
            .checked_add(element.length)
            .is_some_and(|end| end <= element.source);
        if !is_inside || element.length == 0 || element.target == 0 {
            return Err(Error::invalid("the part is not inside the element"));
        }
        let mut shape = array.shape.clone();
        let mut memory_strides = memory.strides.clone();
        let mut selection = match selection {
            Selection::Grid(axes) => Selection::Grid(axes.into_iter().map(Axis::normal).collect()),
            runs => runs,
        };
        selection.check(&shape)?;
        let comes_out = selection
            .shape()
            .filter(|shape| {
                shape
                    .iter()
                    .try_fold(1u64, |n, s| n.checked_mul(*s))
                    .is_some()
            })
            .ok_or_else(|| Error::invalid("the number of selected elements overflows"))?;
        let is_empty = selection.is_empty();
        if !is_empty {
            memory.check(&comes_out, in_memory)?;
            if direction == Operation::Read {
                memory.check_apart(&comes_out)?;
                selection = selection.last_at_each_position()?;
            }
        }
        if shape.is_empty() {
            // A scalar is an array of one element.
            shape = vec![1];
            if matches!(&selection, Selection::Grid(_)) {
                selection = Selection::Grid(vec![Axis::all(1)]);
                memory_strides = vec![0];
            }
        }
        if is_empty {
            selection = Selection::none();
        }
        let grid = match &array.source {
            Source::Chunks(table) if table.grid().shape() == shape => table.grid().clone(),
            Source::Chunks(_) => {
                return Err(Error::invalid(
                    "the chunk table belongs to an array of another shape",
                ));
            }
            // There is nothing to move, whatever the shape.
            _ if is_empty => ChunkGrid::new(&[0], &[1])?,
            source => {
                let bytes = array.bytes()?;
                if let Source::Contiguous { offset } = source
                    && offset.checked_add(bytes).is_none()
                {
                    return Err(Error::new(
                        Kind::Io,
                        format!("its {bytes} bytes at offset {offset} end past the largest offset"),
                    ));
                }
                let (shape, block) = blocks::shape(&shape, &selection, file_element);
                ChunkGrid::new(&shape, &block)?
            }
        };
        let decoded_size = grid
            .elements()
            .checked_mul(file_element)
            .filter(|bytes| i64::try_from(*bytes).is_ok())
            .ok_or_else(|| Error::new(Kind::Io, "its chunks are too large"))?;
        let chunk_strides = match selection {
            Selection::Grid(_) => c_strides(grid.chunk(), file_element),
            Selection::Runs(_) => vec![file_element],
        };
        let is_chunked = matches!(array.source, Source::Chunks(_));
        Ok(Plan {
            direction,
            name: array.name.clone(),
            source: array.source.clone(),
            grid,
            selection,
            geometry: Geometry {
                chunk_strides,
                memory_strides,
                base: memory.base,
                chunk_element: file_element,
                memory_element,
            },
            element,
            pipeline: if is_chunked {
                array.pipeline.clone()
            } else {
                Pipeline::default()
            },
            unfiltered_edges: is_chunked && array.unfiltered_edges,
            fill: array.fill.clone(),
            decoded_size,
        })
    }

    /// Moves the elements by some bytes in memory, which is longer by at least that number.
    pub fn shift(&mut self, bytes: u64) {
        self.geometry.base += bytes;
    }

    /// Returns a write's plan for memory that has only the moved part of each element, in place of the element.
    /// `None` if elements are not whole numbers of elements apart.
    pub fn of_parts(&self) -> Option<Plan> {
        let mut plan = self.clone();
        let ElementMapping { source, length, .. } = self.element;
        let scaled = |bytes: i64| {
            let elements = bytes.checked_div(source.cast_signed())?;
            let is_whole = elements.checked_mul(source.cast_signed()) == Some(bytes);
            is_whole.then(|| elements * length.cast_signed())
        };
        let geometry = &mut plan.geometry;
        for stride in &mut geometry.memory_strides {
            *stride = scaled(*stride)?;
        }
        geometry.base = scaled(geometry.base.cast_signed())?.cast_unsigned();
        geometry.memory_element = length;
        plan.element.source = length;
        plan.element.offset = 0;
        Some(plan)
    }

    /// Returns where the stored bytes are.
    pub fn source(&self) -> &Source {
        &self.source
    }
    /// Returns whether the file is read or written.
    pub fn direction(&self) -> Operation {
        self.direction
    }
    /// Returns which part of each element is moved.
    pub fn element(&self) -> ElementMapping {
        self.element
    }
    /// Returns the size of an element in the file, in bytes.
    pub fn file_element(&self) -> u64 {
        self.geometry.chunk_element
    }
    /// Returns the size of an element in memory, in bytes.
    pub fn memory_element(&self) -> u64 {
        self.geometry.memory_element
    }
    /// Returns the filters of the chunks; empty if the array is not chunked.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }
    /// Returns the name of the array.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Returns whether the array is chunked.
    pub fn is_chunked(&self) -> bool {
        matches!(self.source, Source::Chunks(_))
    }
    /// Returns whether the elements lie in a list of file segments.
    pub fn is_in_segments(&self) -> bool {
        matches!(self.source, Source::Segments(_))
    }
    /// Returns whether the elements are in memory already.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.source, Source::Memory)
    }
    /// Returns the stored element that unwritten elements read as.
    pub fn fill(&self) -> Option<&[u8]> {
        self.fill.as_deref()
    }
    /// Returns the number of bytes of a full decoded chunk.
    pub fn decoded_size(&self) -> u64 {
        self.decoded_size
    }

    /// Returns the index in the array of a chunk's first element.
    pub fn first_element(&self, chunk: u64) -> Vec<u64> {
        let coordinates = self.grid.coordinates(chunk);
        coordinates
            .iter()
            .zip(self.grid.chunk())
            .map(|(at, side)| at * side)
            .collect()
    }

    /// Returns the number of elements of a chunk that lie in the array.
    pub(super) fn elements_of(&self, chunk: u64) -> u64 {
        self.grid.elements_inside(chunk)
    }

    /// Adds array, chunk and file range before the cause of a job's failure.
    pub fn name_in(&self, job: &ChunkJob, error: Error) -> Error {
        let coordinates = self.grid.coordinates(job.chunk);
        let what = match &self.source {
            Source::Chunks(_) => "chunk",
            _ => "block",
        };
        let placed = format!(
            "dataset {}: the {what} at {coordinates:?}, {} bytes at offset {}",
            self.name, job.stored_size, job.address
        );
        error.about(&placed)
    }

    /// Returns the end offset of the last byte of the array's one file that belongs to the array.
    pub fn end(&self) -> u64 {
        match &self.source {
            Source::Chunks(table) => table.end(),
            Source::Contiguous { offset } => {
                let elements: u64 = self.grid.shape().iter().product();
                offset.saturating_add(elements * self.file_element())
            }
            _ => 0,
        }
    }

    /// Returns an upper bound of the decoded bytes that one thread would process for the transfer.
    pub fn work_bytes(&self) -> u64 {
        match self.one_range() {
            Some(range) => range.length,
            None => self
                .touched()
                .saturating_mul(self.grid.elements())
                .saturating_mul(self.file_element()),
        }
    }

    /// Returns an upper bound of the number of touched chunks. Runs that share chunks touch fewer.
    pub fn touched(&self) -> u64 {
        match &self.selection {
            Selection::Grid(axes) => axes
                .iter()
                .zip(self.grid.chunk())
                .map(|(axis, side)| axis.touched(*side))
                .fold(1, u64::saturating_mul),
            Selection::Runs(runs) => runs_by_chunk::most_touched(&self.grid, runs),
        }
    }

    /// Iterates over all work in order of chunk number. Iteration continues after an error unless
    /// memory ran out.
    pub fn works(self: &Arc<Self>) -> PlanJobs {
        PlanJobs::new(self.clone())
    }

    /// Iterates over all work in portions whose stored and decoded bytes together stay below
    /// `limit`; a portion may exceed it if it is a single chunk. The jobs of a portion are sorted
    /// by address.
    pub fn windows(self: &Arc<Self>, limit: u64) -> Windows {
        Windows::new(self.clone(), limit)
    }

    /// Returns the work for one touched chunk; `None` if its memory stays unchanged.
    fn work(&self, chunk: u64, placement: Placement) -> Result<Option<PlanJob>> {
        let found = match &self.source {
            Source::Missing => Err(placement),
            Source::Contiguous { offset } => Ok(self.block(*offset, chunk, placement)),
            Source::Memory | Source::Segments(_) => Ok(self.block(0, chunk, placement)),
            Source::Chunks(table) => match self.find(table, chunk)? {
                None => Err(placement),
                Some(stored) => Ok(self.stored_chunk(chunk, stored, placement)?),
            },
        };
        Ok(match found {
            Ok(job) => Some(PlanJob::Chunk(job)),
            // A write may not skip elements that have no place.
            Err(_) if self.fill.is_none() && self.direction == Operation::Read => None,
            Err(placement) => Some(PlanJob::Fill(FillJob::new(self, chunk, placement))),
        })
    }

    fn find(&self, table: &ChunkTable, chunk: u64) -> Result<Option<StoredChunk>> {
        let found = table.find(chunk);
        found.map_err(|error| in_dataset(error, &self.name))
    }

    /// Completes the job with its stored bytes; `None` if the chunk is not stored.
    fn stored(&self, job: &ChunkJob) -> Result<Option<ChunkJob>> {
        let Source::Chunks(table) = &self.source else {
            return Ok(None);
        };
        let stored = self.find(table, job.chunk)?;
        stored
            .map(|stored| self.stored_chunk(job.chunk, stored, job.placement().clone()))
            .transpose()
    }

    /// Returns the job of a stored chunk.
    fn stored_chunk(
        &self,
        chunk: u64,
        stored: StoredChunk,
        placement: Placement,
    ) -> Result<ChunkJob> {
        let mask = if self.is_unfiltered(chunk) {
            NO_FILTERS
        } else {
            stored.mask
        };
        let filters = self.pipeline.filters.len();
        let is_plain = (0..filters).all(|at| at < 32 && mask >> at & 1 == 1);
        let place = Stored {
            address: stored.address,
            size: stored.size,
            mask,
            is_plain,
            decoded_size: self.decoded_size,
        };
        let job = ChunkJob::new(self, chunk, place, placement);
        if is_plain && stored.size != self.decoded_size {
            let cause = format!(
                "it is stored without filters, but its elements have {} bytes",
                self.decoded_size
            );
            return Err(self.name_in(&job, Error::new(Kind::Io, cause)));
        }
        Ok(job)
    }

    /// Returns whether the selection consists of whole chunks, up to the edge of the array.
    pub fn covers_chunks(&self) -> bool {
        self.selection
            .covers_chunks(self.grid.shape(), self.grid.chunk())
    }

    /// Returns whether a chunk is stored without any filter because it extends past the array's
    /// edge.
    pub fn is_unfiltered(&self, chunk: u64) -> bool {
        self.unfiltered_edges && self.grid.is_partial(chunk)
    }

    /// Returns the job of a block of contiguous data that starts at `offset`; the last block may be
    /// shorter.
    fn block(&self, offset: u64, chunk: u64, placement: Placement) -> ChunkJob {
        let mut elements = 1;
        let mut before = 0;
        let first = self.first_element(chunk);
        for ((at, size), side) in first.iter().zip(self.grid.shape()).zip(self.grid.chunk()) {
            elements *= (*side).min(size - at);
            before = before * size + at;
        }
        let size = elements * self.file_element();
        let place = Stored {
            address: offset + before * self.file_element(),
            size,
            mask: NO_FILTERS,
            is_plain: true,
            decoded_size: size,
        };
        ChunkJob::new(self, chunk, place, placement)
    }

    /// Returns the parts of the segments' files in which a range of the whole array lies, with the
    /// number of each segment.
    pub fn segment_ranges(&self, range: FileRange) -> Vec<(usize, FileRange)> {
        let Source::Segments(segments) = &self.source else {
            return Vec::new();
        };
        let mut parts = Vec::new();
        let mut start = 0u64;
        let (mut at, end) = (range.offset, range.offset + range.length);
        for (number, segment) in segments.iter().enumerate() {
            let stop = segment
                .size
                .map_or(u64::MAX, |size| start.saturating_add(size));
            if at < end && at < stop {
                let length = end.min(stop) - at;
                parts.push((
                    number,
                    FileRange {
                        offset: segment.offset.saturating_add(at - start),
                        length,
                        memory: range.memory + (at - range.offset),
                    },
                ));
                at += length;
            }
            start = stop;
        }
        parts
    }
}

fn c_strides(sides: &[u64], element: u64) -> Vec<u64> {
    let mut strides = vec![element; sides.len()];
    for at in (1..sides.len()).rev() {
        strides[at - 1] = strides[at] * sides[at];
    }
    strides
}
