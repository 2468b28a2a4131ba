//! One worker's way of getting at the new bytes of chunks, from either kind of memory.

use std::sync::Arc;

use penstock_codec::convert::Change;
use penstock_codec::gpu::Kernels;
use penstock_engine::error::Result;
use penstock_engine::gpu::Context;
use penstock_engine::report::Path;
use penstock_engine::request::Share;

use super::Writing;
use super::device::DeviceGather;
use super::feed::Numbered;
use super::host::{Gatherer, HostArray};
use super::writing::Room;
use crate::execute::device::DeviceTarget;
use crate::plan::Before;

/// The array that is written.
pub enum Array {
    Host(HostArray),
    Device {
        memory: DeviceTarget,
        context: Arc<Context>,
        kernels: Arc<Kernels>,
    },
}

/// A decoded chunk with all its new elements.
pub struct Filled<'a> {
    pub bytes: &'a [u8],
    /// They are in the caller's memory, which stays until the request is finished.
    pub stays: bool,
}

impl Array {
    /// How its bytes travel.
    pub fn path(&self) -> Path {
        match self {
            Array::Host(_) => Path::HostBuffered,
            Array::Device { .. } => Path::StagedBuffered,
        }
    }

    /// Fills the chunks that `take` gives, until it gives none, and hands each to `done`. When this
    /// returns, nothing of it touches any memory.
    pub fn each(
        &self,
        writing: &Writing,
        share: &Share<'_>,
        mut take: impl FnMut() -> Result<Vec<Numbered>>,
        mut done: impl FnMut(&Numbered, Filled<'_>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Array::Host(array) => {
                let mut room = Room::default();
                while !share.stopping() {
                    let bite = take()?;
                    if bite.is_empty() {
                        break;
                    }
                    share.joined();
                    for numbered in &bite {
                        from_host(writing, *array, share, numbered, &mut room, &mut done)?;
                    }
                }
                Ok(())
            }
            Array::Device {
                memory,
                context,
                kernels,
            } => {
                let mut gather = DeviceGather::new(writing, *memory, context, kernels, share)?;
                let outcome = gather.each(&mut take, &mut done);
                let drained = gather.drain();
                outcome.and(drained)
            }
        }
    }
}

fn from_host(
    writing: &Writing,
    array: HostArray,
    share: &Share<'_>,
    numbered: &Numbered,
    room: &mut Room,
    done: &mut impl FnMut(&Numbered, Filled<'_>) -> Result<()>,
) -> Result<()> {
    let changed = &numbered.changed;
    let (job, reading) = (&changed.job, &writing.reading);
    let is_plain = matches!(reading.change, Change::Copy) && changed.before == Before::Nothing;
    if let (true, Some(at)) = (is_plain, job.whole(&reading.plan)) {
        let filled = Filled {
            bytes: array.slice(at, job.decoded_size),
            stays: true,
        };
        done(numbered, filled)
    } else {
        let bytes = writing.before(changed, share.counters(), room)?;
        let gatherer = Gatherer {
            item: writing.memory,
            change: &reading.change,
            array,
        };
        gatherer.gather(job.patches(&reading.plan), bytes);
        let filled = Filled {
            bytes,
            stays: false,
        };
        done(numbered, filled)
    }
}
