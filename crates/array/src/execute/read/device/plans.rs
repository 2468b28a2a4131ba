//! The plans of a read into GPU memory, and what places their elements there.

use std::sync::Arc;

use penstock_codec::filters::id;
use penstock_codec::gpu::Kernels;
use penstock_engine::gpu::OwnContext;

use crate::ChunkJob;
use crate::execute::bound::BoundPlan;
use crate::execute::memory::DeviceMemory;

/// What all workers of a read share and never change.
pub(super) struct DevicePlans {
    pub all: Vec<BoundPlan>,
    pub target: DeviceMemory,
    pub context: Arc<OwnContext>,
    /// `None` if this GPU does not load the kernels. Copies then do all the work.
    pub kernels: Option<Arc<Kernels>>,
    /// For each plan, the size of the elements that its first filter shuffles; 1 if it is no
    /// shuffle.
    shuffles: Vec<u32>,
}

/// Position of a shuffle filter that the GPU can undo.
pub(super) const SHUFFLE_AT: usize = 0;

impl DevicePlans {
    pub(super) fn new(
        all: Vec<BoundPlan>,
        target: DeviceMemory,
        context: &Arc<OwnContext>,
        kernels: Option<Arc<Kernels>>,
    ) -> DevicePlans {
        DevicePlans {
            shuffles: all.iter().map(shuffled_element).collect(),
            all,
            target,
            context: Arc::clone(context),
            kernels,
        }
    }

    /// Returns the plan with this number.
    pub(super) fn bound(&self, number: usize) -> &BoundPlan {
        &self.all[number]
    }

    /// Returns the size of the elements that the first filter of a plan shuffles; 1 if it is no
    /// shuffle.
    pub(super) fn shuffled_element(&self, number: usize) -> u32 {
        self.shuffles[number]
    }

    /// Returns how many elements of a chunk the GPU must unshuffle.
    pub(super) fn shuffled(&self, number: usize, job: &ChunkJob) -> u64 {
        let element = self.shuffles[number];
        let is_left_out = job.is_plain || job.mask >> SHUFFLE_AT & 1 == 1;
        match element {
            0 | 1 => 0,
            _ if is_left_out => 0,
            size => job.decoded_size / u64::from(size),
        }
    }
}

fn shuffled_element(bound: &BoundPlan) -> u32 {
    let first = bound.plan.pipeline().filters.get(SHUFFLE_AT);
    let element = first
        .filter(|f| f.id == id::SHUFFLE)
        .and_then(|f| f.values.first());
    (*element.unwrap_or(&1)).max(1)
}
