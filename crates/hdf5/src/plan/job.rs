//! What is to be done for one chunk of a plan.

use super::ReadPlan;
use crate::placement::{Patch, Placement};

/// One chunk, or block of contiguous data, to be read, decoded and placed.
#[derive(Clone, Debug)]
pub struct ChunkJob {
    /// Number of the chunk; [`ReadPlan::first_element`] says where it is in the dataset.
    pub chunk: u64,
    /// Offset in the file of the stored bytes, user block included.
    pub address: u64,
    pub stored_size: u64,
    /// Bit `i` is set if filter `i` was left out.
    pub mask: u32,
    /// No filter was applied: the stored bytes are the elements.
    pub is_plain: bool,
    pub decoded_size: u64,
    pub(super) placement: Placement,
}

/// The part of a chunk that was never written.
#[derive(Clone, Debug)]
pub struct FillJob {
    pub chunk: u64,
    pub(super) placement: Placement,
}

#[derive(Clone, Debug)]
pub enum Work {
    Chunk(ChunkJob),
    Fill(FillJob),
}

/// Bytes of a file and where they go in the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRange {
    pub offset: u64,
    pub length: u64,
    pub target: u64,
}

impl ChunkJob {
    /// Number of elements that are wanted.
    pub fn elements(&self, plan: &ReadPlan) -> u64 {
        self.patches(plan).map(|patch| patch.elements()).sum()
    }

    /// Bytes that the wanted elements take in the destination.
    pub fn bytes(&self, plan: &ReadPlan) -> u64 {
        self.elements(plan) * plan.item().memory
    }

    /// How many boxes there are at most.
    pub fn boxes(&self) -> u64 {
        self.placement.boxes()
    }

    /// The boxes of elements to copy out of the decoded chunk.
    pub fn patches<'a>(&'a self, plan: &'a ReadPlan) -> impl Iterator<Item = Patch> + 'a {
        self.placement.patches(&plan.geometry)
    }

    /// The place in the destination of the whole chunk, if it goes there in one piece as it is.
    pub fn whole(&self, plan: &ReadPlan) -> Option<u64> {
        let mut patches = self.patches(plan);
        let patch = patches.next()?;
        let is_whole = plan.item.is_whole()
            && patches.next().is_none()
            && patch.dims.is_empty()
            && patch.source == 0
            && patch.run * plan.item.stored == self.decoded_size;
        is_whole.then_some(patch.target)
    }

    /// First and behind the last byte of the decoded chunk that are wanted. Of a plain job no other
    /// bytes need to be read.
    pub fn span(&self, plan: &ReadPlan) -> (u64, u64) {
        let size = plan.item.stored;
        self.patches(plan)
            .fold((u64::MAX, 0), |(low, high), patch| {
                (
                    low.min(patch.source),
                    high.max(patch.last_source(size) + size),
                )
            })
    }

    /// The stretches of the file that go to the destination as they are, of one of the boxes. Only of
    /// a plain job of whole elements that need no conversion.
    pub fn ranges<'a>(
        &'a self,
        plan: &ReadPlan,
        patch: &'a Patch,
    ) -> impl Iterator<Item = FileRange> + 'a {
        let size = plan.item.stored;
        patch.copies().map(move |copy| FileRange {
            offset: self.address + copy.source,
            length: copy.elements * size,
            target: copy.target,
        })
    }
}

impl FillJob {
    /// Number of elements to fill.
    pub fn elements(&self, plan: &ReadPlan) -> u64 {
        self.patches(plan).map(|patch| patch.elements()).sum()
    }

    /// Bytes that they take in the destination.
    pub fn bytes(&self, plan: &ReadPlan) -> u64 {
        self.elements(plan) * plan.item().memory
    }

    /// The boxes of elements to fill; their offsets in the chunk mean nothing.
    pub fn patches<'a>(&'a self, plan: &'a ReadPlan) -> impl Iterator<Item = Patch> + 'a {
        self.placement.patches(&plan.geometry)
    }
}
