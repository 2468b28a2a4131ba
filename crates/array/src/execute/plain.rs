//! Transfers that only move bytes in long runs. The engine carries them out without decoding.

use penstock_codec::convert::TypeConversion;
use penstock_engine::Extent;
use penstock_engine::error::Result;
use penstock_engine::request::{MAPPED_ROW, MOST_CHUNKS, MOST_ROWS, ROW_CALL};

use super::bound::BoundPlan;
use crate::PlanJob;
use crate::reserve::{make_room, push};

/// Smallest run that is worth an extent of its own, for host memory and for contiguous data.
const RUN: u64 = 16 << 10;
/// The same for chunks to a GPU, where every extent costs a copy and one kernel places many runs.
const RUN_OF_CHUNK: u64 = 64 << 10;
const MOST_EXTENTS: usize = 1 << 20;

/// Returns the extents of plans that all only move bytes in long runs, else `None`. Memory offsets
/// count from the lowest byte of the memory.
pub(super) fn extents_of_all(plans: &[BoundPlan], is_gpu: bool) -> Result<Option<Vec<Extent>>> {
    if let [bound] = plans {
        return extents(bound, is_gpu);
    }
    if !plans.iter().all(is_plain) {
        return Ok(None);
    }
    let mut all = Vec::new();
    make_room(&mut all, plans.len())?;
    for bound in plans {
        let Some(found) = extents(bound, is_gpu)? else {
            return Ok(None);
        };
        for extent in found {
            push(&mut all, extent)?;
        }
        if all.len() > MOST_EXTENTS {
            return Ok(None);
        }
    }
    Ok(Some(all))
}

/// Returns whether the elements are stored in one file as they are in memory.
fn is_plain(bound: &BoundPlan) -> bool {
    let plan = &bound.plan;
    plan.pipeline().filters.is_empty()
        && matches!(bound.conversion, TypeConversion::Copy)
        && plan.element().is_whole()
        && !plan.is_in_memory()
        && !plan.is_in_segments()
}

/// Returns the extents of a transfer that only moves bytes in long runs, else `None`. Memory
/// offsets count from the lowest byte of the memory.
pub fn extents(bound: &BoundPlan, is_gpu: bool) -> Result<Option<Vec<Extent>>> {
    let least = if is_gpu && bound.plan.is_chunked() {
        RUN_OF_CHUNK
    } else {
        RUN
    };
    extents_from(bound, least, MOST_EXTENTS)
}

/// Returns the rows of a read that one thread reads sooner than several, each by a call of its own, if they are
/// cached: rows so far from each other that a read of all between takes longer, or that they are many blocks.
pub(super) fn few_rows(bound: &BoundPlan) -> Option<Vec<Extent>> {
    let plan = &bound.plan;
    let rows = plan.rows_at_most().filter(|rows| *rows <= MOST_ROWS)?;
    let between = plan.span().min(plan.work_bytes());
    let are_apart = between > rows * ROW_CALL || plan.touched() > MOST_CHUNKS as u64;
    if !are_apart || !is_plain(bound) {
        return None;
    }
    extents_from(bound, 0, MOST_ROWS as usize).ok()?
}

/// Returns the extents of a write by one of several processes, as [`extents`] does, also if its rows
/// are short: the engine writes them through mappings, where the processes need not wait for each
/// other. `None` for rows that form long runs in the file, or lie apart in GPU memory: these are
/// gathered first.
pub(super) fn rows_of_shared_file(bound: &BoundPlan, is_gpu: bool) -> Result<Option<Vec<Extent>>> {
    let is_next = |two: &[Extent]| two[0].memory + two[0].length as usize == two[1].memory;
    let is_apart = |two: &&[Extent]| two[0].offset + two[0].length != two[1].offset;
    let is_useful = |rows: &Vec<Extent>| {
        let bytes: u64 = rows.iter().map(|row| row.length).sum();
        let runs = 1 + rows.windows(2).filter(is_apart).count() as u64;
        bytes / runs < RUN && (!is_gpu || rows.windows(2).all(is_next))
    };
    Ok(extents_from(bound, MAPPED_ROW, MOST_EXTENTS)?.filter(is_useful))
}

/// Returns the extents of a transfer that only moves bytes in at most `most` runs, of `least` bytes on average.
fn extents_from(bound: &BoundPlan, least: u64, most: usize) -> Result<Option<Vec<Extent>>> {
    if !is_plain(bound) {
        return Ok(None);
    }
    let plan = &bound.plan;
    if let Some(range) = plan.one_range() {
        let extent = Extent {
            offset: range.offset,
            length: range.length,
            memory: range.memory as usize,
        };
        return Ok(Some(vec![extent]));
    }
    let mut extents: Vec<Extent> = Vec::new();
    let mut bytes = 0;
    for work in plan.works() {
        let PlanJob::Chunk(job) = work? else {
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
                if is_scattered || extents.len() > most {
                    return Ok(None);
                }
            }
        }
    }
    Ok(Some(extents))
}
