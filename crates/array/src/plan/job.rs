//! What is to be done for one chunk of a plan.

use super::Plan;
use crate::boxes::{BoxRun, Placement, StridedBox};

/// One chunk, or block of contiguous data, to be moved.
#[derive(Clone, Debug)]
pub struct ChunkJob {
    /// Number of the chunk; [`Plan::first_element`] says where it is in the array.
    pub chunk: u64,
    /// Offset in the file of the stored bytes, user block included.
    pub address: u64,
    /// Bytes that it has in the file.
    pub stored_size: u64,
    /// Bit `i` is set if filter `i` was left out.
    pub mask: u32,
    /// No filter was applied: the stored bytes are the elements.
    pub is_plain: bool,
    /// Bytes that it has without filters.
    pub decoded_size: u64,
    /// Number of elements that are selected.
    pub elements: u64,
    /// First and behind the last byte of the decoded chunk that are selected. Of a plain job no other
    /// bytes need to be read.
    pub span: (u64, u64),
    /// All that is selected, if it is one run on both sides.
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

/// What is to be done for one chunk of a read.
#[derive(Clone, Debug)]
pub enum Work {
    /// Its stored bytes are moved.
    Chunk(ChunkJob),
    /// It was never written: its elements get the fill value.
    Fill(FillJob),
}

/// Bytes of a file and where they are in memory.
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
    /// A chunk of which nothing is in the file, or nothing that counts.
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

    /// The same job, which needs all stored bytes, also where these are the elements.
    pub(super) fn with_all_stored(mut self) -> ChunkJob {
        self.is_plain = false;
        self
    }

    /// Bytes that the selected elements take in memory.
    pub fn bytes(&self, plan: &Plan) -> u64 {
        self.elements.saturating_mul(plan.memory_element())
    }

    /// How many boxes there are at most.
    pub fn box_count(&self) -> u64 {
        self.placement.box_count()
    }

    /// The boxes of selected elements.
    pub fn boxes<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = StridedBox> + 'a {
        self.placement.boxes(&plan.geometry)
    }

    pub(super) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The place in memory of the whole chunk, if it lies there in one piece as it is.
    pub fn whole(&self, plan: &Plan) -> Option<u64> {
        let run = self.one_run?;
        let is_whole = plan.element().is_whole()
            && run.chunk == 0
            && run.elements * plan.file_element() == self.decoded_size;
        is_whole.then_some(run.memory)
    }

    /// The stretches of the file that are in memory as they are, of one of the boxes. Only of a plain
    /// job of whole elements that need no conversion.
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

    /// Bytes that the elements take in memory.
    pub fn bytes(&self, plan: &Plan) -> u64 {
        self.elements.saturating_mul(plan.memory_element())
    }

    /// The boxes of elements to fill; their offsets in the chunk mean nothing.
    pub fn boxes<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = StridedBox> + 'a {
        self.placement.boxes(&plan.geometry)
    }

    pub(super) fn placement(&self) -> &Placement {
        &self.placement
    }
}
