//! Provides the new bytes of chunks to a worker, from either kind of memory.

use std::sync::Arc;

use penstock_codec::convert::TypeConversion;
use penstock_codec::gpu::Kernels;
use penstock_engine::error::Result;
use penstock_engine::gpu::OwnContext;
use penstock_engine::report::Path;
use penstock_engine::request::Share;

use super::before::Room;
use super::device_gather::{DeviceGather, WhenFull};
use super::filled::Filled;
use super::queue::Numbered;
use crate::Before;
use crate::execute::bound::BoundPlan;
use crate::execute::elements::Elements;
use crate::execute::memory::{DeviceMemory, HostMemory};

/// The memory of the array that is written.
pub(crate) enum Array {
    Host(HostMemory),
    Device {
        memory: DeviceMemory,
        context: Arc<OwnContext>,
        kernels: Arc<Kernels>,
    },
}

impl Array {
    /// Returns the path that the bytes take.
    pub(crate) fn path(&self) -> Path {
        match self {
            Array::Host(_) => Path::HostBuffered,
            Array::Device { .. } => Path::StagedBuffered,
        }
    }

    /// Fills the chunks that `take` returns, until it returns none, and hands each to `done`. After
    /// this returns, none of its work accesses any memory.
    pub(crate) fn each(
        &self,
        bound: &BoundPlan,
        share: &Share<'_>,
        take: impl FnMut() -> Result<Vec<Numbered>>,
        done: impl FnMut(&Numbered, Filled<'_>) -> Result<()>,
    ) -> Result<()> {
        self.each_with(bound, share, &|| (), take, done)
    }

    /// As [`each`](Self::each). If the GPU has no memory for chunks, calls `when_full` before it
    /// waits until other workers return memory.
    pub(crate) fn each_with(
        &self,
        bound: &BoundPlan,
        share: &Share<'_>,
        when_full: WhenFull<'_>,
        mut take: impl FnMut() -> Result<Vec<Numbered>>,
        mut done: impl FnMut(&Numbered, Filled<'_>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Array::Host(memory) => {
                let mut room = Room::default();
                while !share.stopping() {
                    let batch = take()?;
                    if batch.is_empty() {
                        break;
                    }
                    share.joined();
                    for numbered in &batch {
                        from_host(bound, *memory, share, numbered, &mut room, &mut done)?;
                    }
                }
                Ok(())
            }
            Array::Device {
                memory,
                context,
                kernels,
            } => {
                let mut gather =
                    DeviceGather::new(bound, *memory, (context, kernels), share, when_full)?;
                let outcome = gather.each(&mut take, &mut done);
                let drained = gather.drain();
                outcome.and(drained)
            }
        }
    }
}

fn from_host(
    bound: &BoundPlan,
    memory: HostMemory,
    share: &Share<'_>,
    numbered: &Numbered,
    room: &mut Room,
    done: &mut impl FnMut(&Numbered, Filled<'_>) -> Result<()>,
) -> Result<()> {
    let changed = &numbered.changed;
    let job = &changed.job;
    let is_plain =
        matches!(bound.conversion, TypeConversion::Copy) && changed.before == Before::Nothing;
    if let (true, Some(at)) = (is_plain, job.whole(&bound.plan)) {
        let filled = Filled {
            bytes: memory.slice(at, job.decoded_size),
            stays: true,
        };
        done(numbered, filled)
    } else {
        let bytes = bound.before(changed, share.counters(), room)?;
        let elements = Elements {
            mapping: bound.plan.element(),
            conversion: &bound.conversion,
            memory,
        };
        elements.gather(job.boxes(&bound.plan), bytes);
        let filled = Filled {
            bytes,
            stays: false,
        };
        done(numbered, filled)
    }
}
