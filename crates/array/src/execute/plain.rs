//! Transfers that only move bytes in long runs, which the engine carries out without decoding.

use penstock_codec::convert::TypeConversion;
use penstock_engine::Extent;
use penstock_engine::error::Result;

use super::bound::BoundPlan;
use crate::reserve::push;
use crate::{Source, Work};

/// Smallest run that is worth an extent of its own, for host memory and for contiguous data.
const RUN: u64 = 16 << 10;
/// The same for chunks to a GPU, where every extent costs a copy and one kernel places many runs.
const RUN_OF_CHUNK: u64 = 64 << 10;
const MOST_EXTENTS: usize = 1 << 20;

/// Returns the extents of a transfer that only moves bytes in long runs, else `None`. Memory
/// offsets count from the lowest byte of the memory.
pub fn extents(bound: &BoundPlan, is_gpu: bool) -> Result<Option<Vec<Extent>>> {
    let plan = &bound.plan;
    let is_plain = plan.pipeline().filters.is_empty()
        && matches!(bound.conversion, TypeConversion::Copy)
        && plan.element().is_whole()
        && !plan.is_in_memory()
        && !plan.is_in_segments();
    if !is_plain {
        return Ok(None);
    }
    if let Some(range) = plan.one_range() {
        let extent = Extent {
            offset: range.offset,
            length: range.length,
            memory: range.memory as usize,
        };
        return Ok(Some(vec![extent]));
    }
    let is_chunked = matches!(plan.source(), Source::Chunks(_));
    let least = match is_gpu && is_chunked {
        true => RUN_OF_CHUNK,
        false => RUN,
    };
    let mut extents: Vec<Extent> = Vec::new();
    let mut bytes = 0;
    for work in plan.works() {
        let Work::Chunk(job) = work? else {
            return Ok(None);
        };
        for strided in job.boxes(plan) {
            for range in job.ranges(plan, &strided) {
                let memory = range.memory as usize;
                bytes += range.length;
                match extents.last_mut() {
                    Some(last)
                        if last.offset + last.length == range.offset
                            && last.memory + last.length as usize == memory =>
                    {
                        last.length += range.length;
                    }
                    _ => push(
                        &mut extents,
                        Extent {
                            offset: range.offset,
                            length: range.length,
                            memory,
                        },
                    )?,
                }
                let is_scattered = extents.len() > 16 && bytes / (extents.len() as u64) < least;
                if is_scattered || extents.len() > MOST_EXTENTS {
                    return Ok(None);
                }
            }
        }
    }
    Ok(Some(extents))
}
