//! Plans: from a dataset, its chunk table and a selection to stretches of the file and the places
//! in the destination where their elements go. Pure data, made chunk by chunk on demand.

mod change;
mod job;
mod stretch;
mod walk;

use std::sync::Arc;

use penstock_engine::error::{Error, Kind, Result};

use crate::blocks;
use crate::chunks::{ChunkGrid, ChunkTable};
use crate::dataset::{DatasetInfo, ExternalSlot, Layout, in_dataset};
use crate::placement::{Geometry, Placement};
use crate::selection::{Axis, Selection};
pub(crate) use change::{Before, Changed, Changes};
pub use job::{ChunkJob, FileRange, FillJob, Work};
pub use walk::{Window, Windows, Works};

/// A filter mask that leaves every filter out.
pub const NO_FILTERS: u32 = u32::MAX;

/// What of each element is wanted, and the room it gets in the destination. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Size of an element in the file.
    pub stored: u64,
    /// The part of it that is wanted: a field of a compound, or all.
    pub offset: u64,
    pub length: u64,
    /// Size of an element in the destination, after conversion.
    pub memory: u64,
}

impl Item {
    /// Whole elements, as they are stored.
    pub fn whole(size: u64) -> Item {
        Item {
            stored: size,
            offset: 0,
            length: size,
            memory: size,
        }
    }

    /// Whether runs of elements are the same number of bytes on both sides.
    pub fn is_whole(&self) -> bool {
        *self == Item::whole(self.stored)
    }
}

/// The memory that a selection is read into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Offset of the first element that comes out.
    pub base: u64,
    /// Bytes of the memory: nothing outside `0..length` is ever a target.
    pub length: u64,
    /// Bytes from an element to the next along each dimension in which the selection comes out.
    pub strides: Vec<i64>,
}

impl Destination {
    /// A C array of this shape.
    pub fn dense(shape: &[u64], element: u64) -> Result<Destination> {
        let too_large =
            || Error::invalid(format!("an array of shape {shape:?} is too large to count"));
        let mut strides = vec![0; shape.len()];
        let mut bytes = element;
        for (size, stride) in shape.iter().zip(&mut strides).rev() {
            *stride = i64::try_from(bytes).map_err(|_| too_large())?;
            bytes = bytes.checked_mul((*size).max(1)).ok_or_else(too_large)?;
        }
        Ok(Destination {
            base: 0,
            length: if shape.contains(&0) { 0 } else { bytes },
            strides,
        })
    }

    /// An error if elements of the selection would come out on each other.
    pub(crate) fn check_apart(&self, shape: &[u64]) -> Result<()> {
        if self
            .strides
            .iter()
            .zip(shape)
            .any(|(stride, size)| *stride == 0 && *size > 1)
        {
            return Err(Error::invalid(
                "a dimension of the destination has stride 0, so its elements lie on each other",
            ));
        }
        Ok(())
    }

    /// An error if an element of the selection would come out outside the memory.
    pub(crate) fn check(&self, shape: &[u64], element: u64) -> Result<()> {
        if self.strides.len() != shape.len() {
            return Err(Error::invalid(format!(
                "the selection comes out with shape {shape:?}, the destination has {} strides",
                self.strides.len()
            )));
        }
        let (mut low, mut high) = (i128::from(self.base), i128::from(self.base));
        for (stride, size) in self.strides.iter().zip(shape) {
            let reach = i128::from(*stride) * i128::from(size - 1);
            *(if reach < 0 { &mut low } else { &mut high }) += reach;
        }
        let end = high + i128::from(element);
        let most = i128::from(self.length.min(i64::MAX as u64));
        if low < 0 || end > most {
            return Err(Error::invalid(format!(
                "the selection comes out at bytes {low} to {end} of a destination of {} bytes",
                self.length
            )));
        }
        Ok(())
    }
}

/// Where decoded bytes come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Chunks of the file.
    Chunks(Arc<ChunkTable>),
    /// Contiguous from this offset of the file on; jobs are blocks of it.
    Contiguous { offset: u64 },
    /// As contiguous, from offset 0 of these slots put one behind the other.
    External(Vec<ExternalSlot>),
    /// The whole dataset, which the caller has in memory as HDF5 read it. Jobs are blocks of it,
    /// with offsets in that memory as their addresses.
    Given,
    /// Nothing was ever written.
    Missing,
}

/// A plan of reading. It is shared by workers; nothing in it refers to HDF5.
#[derive(Clone, Debug)]
pub struct ReadPlan {
    name: String,
    source: Source,
    grid: ChunkGrid,
    selection: Selection,
    geometry: Geometry,
    item: Item,
    filters: usize,
    dont_filter_edges: bool,
    fill: Option<Vec<u8>>,
    decoded_size: u64,
}

impl ReadPlan {
    /// `table` is the chunk table of a chunked dataset. Compact and virtual datasets are
    /// [`Source::Given`].
    pub fn new(
        info: &DatasetInfo,
        table: Option<Arc<ChunkTable>>,
        selection: Selection,
        destination: &Destination,
        item: Item,
    ) -> Result<ReadPlan> {
        let source = ReadPlan::source_of(info, table)?;
        ReadPlan::make(info, source, selection, destination, item, true)
            .map_err(|e| info.name_in(e))
    }

    /// A plan of the elements that a write changes, and of where their new values are. In memory
    /// elements may lie on each other: one value for several.
    pub(crate) fn of_change(
        info: &DatasetInfo,
        table: Option<Arc<ChunkTable>>,
        selection: Selection,
        memory: &Destination,
        item: Item,
    ) -> Result<ReadPlan> {
        let source = ReadPlan::source_of(info, table)?;
        ReadPlan::make(info, source, selection, memory, item, false).map_err(|e| info.name_in(e))
    }

    fn source_of(info: &DatasetInfo, table: Option<Arc<ChunkTable>>) -> Result<Source> {
        Ok(match (&info.layout, table) {
            (Layout::Chunked { .. }, Some(table)) => Source::Chunks(table),
            (Layout::Chunked { .. }, None) => {
                return Err(Error::invalid("a chunked dataset needs its chunk table"));
            }
            (Layout::Contiguous { offset }, _) => match offset {
                Some(offset) => Source::Contiguous { offset: *offset },
                None => Source::Missing,
            },
            (Layout::External(slots), _) => Source::External(slots.clone()),
            (Layout::Compact | Layout::Virtual(_), _) => Source::Given,
        })
    }

    /// A plan for the elements of a dataset that HDF5 itself has read into memory, all of them.
    pub fn of_memory(
        info: &DatasetInfo,
        selection: Selection,
        destination: &Destination,
        item: Item,
    ) -> Result<ReadPlan> {
        ReadPlan::make(info, Source::Given, selection, destination, item, true)
            .map_err(|e| info.name_in(e))
    }

    /// A plan that gives elements the dataset's fill value, whatever is stored.
    pub fn of_fill(
        info: &DatasetInfo,
        selection: Selection,
        destination: &Destination,
        item: Item,
    ) -> Result<ReadPlan> {
        ReadPlan::make(info, Source::Missing, selection, destination, item, true)
            .map_err(|e| info.name_in(e))
    }

    fn make(
        info: &DatasetInfo,
        source: Source,
        selection: Selection,
        destination: &Destination,
        item: Item,
        is_read: bool,
    ) -> Result<ReadPlan> {
        if item.stored != info.element.size() as u64 {
            return Err(Error::invalid("the item has another size than the element"));
        }
        let is_inside = item
            .offset
            .checked_add(item.length)
            .is_some_and(|end| end <= item.stored);
        if !is_inside || item.length == 0 || item.memory == 0 {
            return Err(Error::invalid("the item is not a part of the element"));
        }
        let mut shape = info.shape.clone();
        let mut strides = destination.strides.clone();
        let mut selection = match selection {
            Selection::Grid(axes) => Selection::Grid(axes.into_iter().map(Axis::normal).collect()),
            runs => runs,
        };
        selection.check(&shape)?;
        if info.is_null {
            selection = Selection::none();
        }
        let comes_out = selection
            .shape()
            .filter(|shape| {
                shape
                    .iter()
                    .try_fold(1u64, |n, s| n.checked_mul(*s))
                    .is_some()
            })
            .ok_or_else(|| Error::invalid("the selection has too many elements to count"))?;
        let is_empty = selection.is_empty();
        if !is_empty {
            destination.check(&comes_out, item.memory)?;
            if is_read {
                destination.check_apart(&comes_out)?;
            }
        }
        if shape.is_empty() {
            // A scalar is an array of one element.
            shape = vec![1];
            if matches!(&selection, Selection::Grid(_)) {
                selection = Selection::Grid(vec![Axis::all(1)]);
                strides = vec![0];
            }
        }
        if is_empty {
            selection = Selection::none();
        }
        let grid = match (&source, &info.layout) {
            (Source::Chunks(table), _) if table.grid().shape() == shape => table.grid().clone(),
            (Source::Chunks(_), _) => {
                return Err(Error::invalid("the chunk table is that of another shape"));
            }
            // Nothing to do, whatever the shape.
            _ if is_empty => ChunkGrid::new(&[0], &[1])?,
            _ => {
                let bytes = info.bytes()?;
                if let Source::Contiguous { offset } = source
                    && offset.checked_add(bytes).is_none()
                {
                    return Err(Error::new(
                        Kind::Io,
                        format!("its {bytes} bytes at offset {offset} reach past any file"),
                    ));
                }
                let (shape, block) = blocks::shape(&shape, &selection, item.stored);
                ChunkGrid::new(&shape, &block)?
            }
        };
        let decoded_size = grid
            .elements()
            .checked_mul(item.stored)
            .filter(|bytes| i64::try_from(*bytes).is_ok())
            .ok_or_else(|| Error::new(Kind::Io, "its chunks are too large"))?;
        let mut source_strides = vec![item.stored];
        if let Selection::Grid(_) = selection {
            source_strides = c_strides(grid.chunk(), item.stored);
        }
        let (filters, dont_filter_edges) = match &info.layout {
            Layout::Chunked {
                dont_filter_edges, ..
            } => (info.filters.len(), *dont_filter_edges),
            _ => (0, false),
        };
        Ok(ReadPlan {
            name: info.name.clone(),
            source,
            grid,
            selection,
            geometry: Geometry {
                source: source_strides,
                target: strides,
                base: destination.base,
                source_element: item.stored,
                target_element: item.memory,
            },
            item,
            filters,
            dont_filter_edges,
            fill: info.fill.clone(),
            decoded_size,
        })
    }

    pub fn source(&self) -> &Source {
        &self.source
    }
    pub fn item(&self) -> Item {
        self.item
    }
    /// The name of the dataset.
    pub fn name(&self) -> &str {
        &self.name
    }
    pub fn is_external(&self) -> bool {
        matches!(self.source, Source::External(_))
    }
    pub fn is_given(&self) -> bool {
        matches!(self.source, Source::Given)
    }
    /// The stored element that unwritten elements read as.
    pub fn fill(&self) -> Option<&[u8]> {
        self.fill.as_deref()
    }
    /// Bytes of a full decoded chunk.
    pub fn decoded_size(&self) -> u64 {
        self.decoded_size
    }

    /// Index in the dataset of a chunk's first element.
    pub fn first_element(&self, chunk: u64) -> Vec<u64> {
        let coordinates = self.grid.coordinates(chunk);
        coordinates
            .iter()
            .zip(self.grid.chunk())
            .map(|(at, side)| at * side)
            .collect()
    }

    /// Puts dataset, chunk and file range before the cause of a failure of a job.
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

    /// Behind the last byte of its one file that belongs to the dataset.
    pub(crate) fn end(&self) -> u64 {
        match &self.source {
            Source::Chunks(table) => table.end(),
            Source::Contiguous { offset } => {
                let elements: u64 = self.grid.shape().iter().product();
                offset.saturating_add(elements * self.item.stored)
            }
            _ => 0,
        }
    }

    /// How many chunks are touched, about: a selection of single elements may touch fewer.
    pub fn touched(&self) -> u64 {
        match &self.selection {
            Selection::Grid(axes) => axes
                .iter()
                .zip(self.grid.chunk())
                .map(|(axis, side)| axis.touched(*side))
                .fold(1, u64::saturating_mul),
            Selection::Runs(runs) => {
                let elements = runs.iter().fold(0u64, |n, r| n.saturating_add(r.length));
                let whole = elements / self.grid.elements().max(1);
                whole
                    .saturating_add(runs.len() as u64)
                    .min(self.grid.total())
            }
        }
    }

    /// All work, chunk by chunk in order of number. After an error the next chunk follows, if it was not
    /// for want of memory.
    pub fn works(self: &Arc<Self>) -> Works {
        Works::new(self.clone())
    }

    /// All work in portions whose stored and decoded bytes together stay below `limit`, or that are
    /// a single chunk. Jobs of a portion are sorted by address.
    pub fn windows(self: &Arc<Self>, limit: u64) -> Windows {
        Windows::new(self.clone(), limit)
    }

    /// What is to be done for one touched chunk; `None` if it stays as it is.
    fn work(&self, chunk: u64, placement: Placement) -> Result<Option<Work>> {
        let job = |address, stored_size, mask, is_plain| ChunkJob {
            chunk,
            address,
            stored_size,
            mask,
            is_plain,
            decoded_size: self.decoded_size,
            placement: placement.clone(),
        };
        let found = match &self.source {
            Source::Missing => None,
            Source::Contiguous { offset } => Some(self.block(*offset, job(0, 0, NO_FILTERS, true))),
            Source::Given | Source::External(_) => Some(self.block(0, job(0, 0, NO_FILTERS, true))),
            Source::Chunks(table) => {
                let stored = table.find(chunk).map_err(|e| in_dataset(e, &self.name))?;
                match stored {
                    None => None,
                    Some(stored) => {
                        let is_bare = self.dont_filter_edges && self.grid.is_partial(chunk);
                        let mask = if is_bare { NO_FILTERS } else { stored.mask };
                        let is_plain = (0..self.filters).all(|at| at < 32 && mask >> at & 1 == 1);
                        let job = job(stored.address, stored.size, mask, is_plain);
                        if is_plain && stored.size != self.decoded_size {
                            let cause = format!(
                                "it is stored without filters, and its elements have {} bytes",
                                self.decoded_size
                            );
                            return Err(self.name_in(&job, Error::new(Kind::Io, cause)));
                        }
                        Some(job)
                    }
                }
            }
        };
        Ok(match found {
            Some(job) => Some(Work::Chunk(job)),
            None if self.fill.is_none() => None,
            None => Some(Work::Fill(FillJob { chunk, placement })),
        })
    }

    /// A block of contiguous data that starts at `offset`; the last one may be shorter.
    fn block(&self, offset: u64, mut job: ChunkJob) -> ChunkJob {
        let mut elements = 1;
        let mut before = 0;
        let first = self.first_element(job.chunk);
        for ((at, size), side) in first.iter().zip(self.grid.shape()).zip(self.grid.chunk()) {
            elements *= (*side).min(size - at);
            before = before * size + at;
        }
        job.address = offset + before * self.item.stored;
        job.stored_size = elements * self.item.stored;
        job.decoded_size = job.stored_size;
        job
    }

    /// The parts of the slots of external storage that a range of the contiguous whole lies in.
    pub fn external_ranges(&self, range: FileRange) -> Vec<(usize, FileRange)> {
        let Source::External(slots) = &self.source else {
            return Vec::new();
        };
        let mut parts = Vec::new();
        let mut start = 0u64;
        let (mut at, end) = (range.offset, range.offset + range.length);
        for (number, slot) in slots.iter().enumerate() {
            let stop = slot
                .size
                .map_or(u64::MAX, |size| start.saturating_add(size));
            if at < end && at < stop {
                let length = end.min(stop) - at;
                parts.push((
                    number,
                    FileRange {
                        offset: slot.offset.saturating_add(at - start),
                        length,
                        target: range.target + (at - range.offset),
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
