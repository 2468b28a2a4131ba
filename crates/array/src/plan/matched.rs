//! Two selections, of file and memory, whose elements correspond in order, combined into one.
//!
//! If both are evenly spaced boxes of the same shape, the selection of the file stays as it is, and
//! only the strides of memory are computed. Otherwise both become lists of runs in the order of
//! their elements, and a merge walks over both lists at once: each step takes the shorter of the
//! two present runs and cuts the other one there. Every resulting run is contiguous on both sides,
//! and neighbours that continue each other are joined.

use penstock_engine::error::{Error, Result};

use super::{MemoryLayout, MemorySize};
use crate::chunks::ChunkGrid;
use crate::reserve::{make_room, push};
use crate::selection::{Axis, Run, Selection};

/// Maps the n-th element of `file` to the n-th element of `memory`, which is a selection of a C
/// array of shape `memory_shape` with elements of that size.
pub fn match_selections(
    file: &Selection,
    file_shape: &[u64],
    memory: &Selection,
    memory_shape: &[u64],
    memory_element: MemorySize,
) -> Result<(Selection, MemoryLayout)> {
    file.check(file_shape)?;
    memory.check(memory_shape)?;
    let (from, to) = (file.elements(), memory.elements());
    let (Some(from), Some(to)) = (from, to) else {
        return Err(Error::invalid("the number of selected elements overflows"));
    };
    if from != to {
        return Err(Error::invalid(format!(
            "{from} elements are selected in the file, but {to} in memory"
        )));
    }
    if from == 0 {
        let destination = MemoryLayout {
            base: 0,
            length: 0,
            strides: vec![1],
        };
        return Ok((Selection::none(), destination));
    }
    let length = memory_shape
        .iter()
        .try_fold(memory_element.0, |all, size| all.checked_mul(*size))
        .filter(|length| i64::try_from(*length).is_ok())
        .ok_or_else(|| Error::invalid("the size of the memory overflows"))?;
    if let Some((base, strides)) = same_box(file, memory, memory_shape, memory_element.0) {
        let destination = MemoryLayout {
            base,
            length,
            strides,
        };
        return Ok((file.clone(), destination));
    }
    let runs = zip(
        &in_order(file, file_shape)?,
        &in_order(memory, memory_shape)?,
    )?;
    let destination = MemoryLayout {
        base: 0,
        length,
        strides: vec![memory_element.0 as i64],
    };
    Ok((Selection::Runs(runs), destination))
}

/// Returns the offset and strides in bytes if both selections are evenly spaced boxes of the same
/// shape, apart from dimensions of size 1.
fn same_box(
    file: &Selection,
    memory: &Selection,
    memory_shape: &[u64],
    memory_element: u64,
) -> Option<(u64, Vec<i64>)> {
    let (Selection::Grid(file), Selection::Grid(memory)) = (file, memory) else {
        return None;
    };
    let mut row = memory_element;
    let mut base = 0;
    let mut sides = Vec::new();
    for (axis, size) in memory.iter().zip(memory_shape).rev() {
        let Axis::Slab {
            start,
            stride,
            count,
            block: 1,
        } = axis.clone().normal()
        else {
            return None;
        };
        base += start * row;
        if count != 1 {
            sides.push((count, (stride * row) as i64));
        }
        row *= size;
    }
    let mut strides = vec![0; file.len()];
    let mut sides = sides.into_iter();
    for (axis, stride) in file.iter().zip(&mut strides).rev() {
        if axis.len() != 1 {
            let (count, bytes) = sides.next()?;
            if count != axis.len() {
                return None;
            }
            *stride = bytes;
        }
    }
    sides.next().is_none().then_some((base, strides))
}

/// Returns all runs of a selection, ordered by position.
pub fn in_order(selection: &Selection, shape: &[u64]) -> Result<Vec<Run>> {
    let mut runs = match selection {
        Selection::Runs(runs) => {
            let mut copy = Vec::new();
            make_room(&mut copy, runs.len())?;
            copy.extend_from_slice(runs);
            copy
        }
        Selection::Grid(_) if selection.is_empty() => Vec::new(),
        Selection::Grid(axes) => grid_runs(axes, shape)?,
    };
    // A stable sort would allocate. Positions are unique.
    runs.sort_unstable_by_key(|run| run.position);
    Ok(runs)
}

fn grid_runs(axes: &[Axis], shape: &[u64]) -> Result<Vec<Run>> {
    if axes.is_empty() {
        return Ok(vec![Run {
            start: 0,
            position: 0,
            length: 1,
        }]);
    }
    // Treats the array as one chunk, so that chunk offsets are offsets in the array.
    let whole = ChunkGrid::new(shape, shape)?;
    let mut runs = vec![Run {
        start: 0,
        position: 0,
        length: 1,
    }];
    for (axis, size) in axes.iter().zip(whole.shape()) {
        let ranges = axis.ranges(0, *size)?;
        let positions = axis.len();
        let mut next = Vec::new();
        for run in &runs {
            for at in 0..run.length {
                let start = (run.start + at) * size;
                let position = (run.position + at) * positions;
                for ranges in &ranges {
                    for (index, place) in ranges.firsts() {
                        let run = Run {
                            start: start + index,
                            position: position + place,
                            length: ranges.length,
                        };
                        push(&mut next, run)?;
                    }
                }
            }
        }
        runs = join(next);
    }
    Ok(runs)
}

fn join(mut runs: Vec<Run>) -> Vec<Run> {
    runs.dedup_by(|next, run| {
        let continues =
            run.start + run.length == next.start && run.position + run.length == next.position;
        if continues {
            run.length += next.length;
        }
        continues
    });
    runs
}

/// Splits runs so that both sides match. Both lists are ordered by position and cover the same
/// number of elements.
fn zip(file: &[Run], memory: &[Run]) -> Result<Vec<Run>> {
    let mut zipped = Vec::new();
    let (mut from, mut to) = (file.iter().copied(), memory.iter().copied());
    let (mut left, mut right) = (from.next(), to.next());
    while let (Some(f), Some(m)) = (&mut left, &mut right) {
        let length = f.length.min(m.length);
        if length > 0 {
            let run = Run {
                start: f.start,
                position: m.start,
                length,
            };
            push(&mut zipped, run)?;
        }
        for run in [&mut *f, &mut *m] {
            run.start += length;
            run.length -= length;
        }
        if f.length == 0 {
            left = from.next();
        }
        if m.length == 0 {
            right = to.next();
        }
    }
    Ok(join(zipped))
}
