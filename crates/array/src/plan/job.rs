//! The work for one chunk of a plan.

use super::Plan;
use crate::boxes::{BoxRun, Placement, StridedBox};

/// One chunk, or block of contiguous data, to move.
#[derive(Clone, Debug)]
pub struct ChunkJob {
    /// Number of the chunk; [`Plan::first_element`] returns its position in the array.
    pub chunk: u64,
    /// File offset of the stored bytes, counted from the start of the file (user block included).
    pub address: u64,
    /// Number of stored bytes.
    pub stored_size: u64,
    /// Filter mask: bit `i` is set if filter `i` was skipped.
    pub mask: u32,
    /// Whether no filter was applied, so that the stored bytes are the elements.
    pub is_plain: bool,
    /// Number of bytes after all filters are undone.
    pub decoded_size: u64,
    /// Number of selected elements.
    pub elements: u64,
    /// Byte range (start, end) of the decoded chunk that the selected elements span. A plain read
    /// needs no other bytes.
    pub span: (u64, u64),
    /// The whole selection of the chunk, if it is one run on both sides.
    one_run: Option<BoxRun>,
    placement: Placement,
}

/// Selected elements of a chunk that was never written.
#[derive(Clone, Debug)]
pub struct FillJob {
    /// Number of the chunk.
    pub chunk: u64,
    /// Number of elements to fill.
    pub elements: u64,
    placement: Placement,
}

/// A job for one chunk of a read.
#[derive(Clone, Debug)]
pub enum PlanJob {
    /// The chunk is stored: its bytes are moved.
    Chunk(ChunkJob),
    /// The chunk was never written: its elements get the fill value.
    Fill(FillJob),
}

/// A byte range of a file and its place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Offset in memory.
    pub memory: u64,
}

/// Where and how the bytes of a chunk are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub address: u64,
    pub size: u64,
    pub mask: u32,
    pub is_plain: bool,
    pub decoded_size: u64,
}

impl Stored {
    /// Returns the entry of a chunk that has no stored bytes, or whose stored bytes do not matter.
    pub(super) fn nowhere(decoded_size: u64) -> Stored {
        Stored {
            address: 0,
            size: 0,
            mask: 0,
            is_plain: false,
            decoded_size,
        }
    }
}

impl ChunkJob {
    pub(super) fn new(plan: &Plan, chunk: u64, stored: Stored, placement: Placement) -> ChunkJob {
        let (elements, span) = placement.extent(&plan.geometry);
        let mut one_run = None;
        if placement.box_count() == 1 {
            let mut boxes = placement.boxes(&plan.geometry);
            one_run = boxes
                .next()
                .filter(|only| only.axes.is_empty())
                .map(|only| BoxRun {
                    chunk: only.chunk,
                    memory: only.memory,
                    elements: only.run,
                });
        }
        ChunkJob {
            chunk,
            address: stored.address,
            stored_size: stored.size,
            mask: stored.mask,
            is_plain: stored.is_plain,
            decoded_size: stored.decoded_size,
            elements,
            span,
            one_run,
            placement,
        }
    }

    /// Returns the same job, marked as needing all stored bytes even if no filter was applied.
    pub(super) fn with_all_stored(mut self) -> ChunkJob {
        self.is_plain = false;
        self
    }

    /// Returns the number of bytes that the selected elements take in memory.
    pub fn bytes(&self, plan: &Plan) -> u64 {
        self.elements.saturating_mul(plan.memory_element())
    }

    /// Returns an upper bound of the number of boxes.
    pub fn box_count(&self) -> u64 {
        self.placement.box_count()
    }

    /// Returns the boxes of selected elements.
    pub fn boxes<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = StridedBox> + 'a {
        self.placement.boxes(&plan.geometry)
    }

    pub(super) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Returns the memory offset of the whole chunk if its elements lie there contiguously and
    /// unchanged.
    pub fn whole(&self, plan: &Plan) -> Option<u64> {
        let run = self.one_run?;
        let is_whole = plan.element().is_whole()
            && run.chunk == 0
            && run.elements * plan.file_element() == self.decoded_size;
        is_whole.then_some(run.memory)
    }

    /// Returns whether all elements of the chunk that lie in the array are selected, and moved whole.
    pub fn is_all(&self, plan: &Plan) -> bool {
        let is_full = || self.elements * plan.file_element() >= self.decoded_size;
        plan.element().is_whole() && (is_full() || self.elements >= plan.elements_of(self.chunk))
    }

    /// Returns whether most bytes between the first and the last selected element of a plain job are not selected.
    pub fn is_sparse(&self, plan: &Plan) -> bool {
        self.is_plain && self.elements * plan.file_element() * 4 < self.span.1 - self.span.0
    }

    /// Returns the file range of all selected elements, if they are one run on both sides. Valid as
    /// [`ranges`](Self::ranges) is.
    pub fn one_range(&self, plan: &Plan) -> Option<FileRange> {
        self.one_run.map(|run| FileRange {
            offset: self.address + run.chunk,
            length: run.elements * plan.file_element(),
            memory: run.memory,
        })
    }

    /// Returns the file ranges whose bytes are those of memory, for one of the boxes. Valid only
    /// for a plain job of whole elements without conversion.
    pub fn ranges<'a>(
        &'a self,
        plan: &Plan,
        of: &'a StridedBox,
    ) -> impl Iterator<Item = FileRange> + 'a {
        let size = plan.file_element();
        of.runs().map(move |run| FileRange {
            offset: self.address + run.chunk,
            length: run.elements * size,
            memory: run.memory,
        })
    }
}

impl FillJob {
    pub(super) fn new(plan: &Plan, chunk: u64, placement: Placement) -> FillJob {
        FillJob {
            chunk,
            elements: placement.extent(&plan.geometry).0,
            placement,
        }
    }

    /// Returns the number of bytes that the elements take in memory.
    pub fn bytes(&self, plan: &Plan) -> u64 {
        self.elements.saturating_mul(plan.memory_element())
    }

    /// Returns the boxes of elements to fill; their chunk offsets have no meaning.
    pub fn boxes<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = StridedBox> + 'a {
        self.placement.boxes(&plan.geometry)
    }

    pub(super) fn placement(&self) -> &Placement {
        &self.placement
    }
}
