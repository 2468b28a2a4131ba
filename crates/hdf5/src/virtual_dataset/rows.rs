//! Mappings between selections of any form, resolved by runs of elements.

use penstock_array::{Axis, MemoryLayout, Run, Selection, in_order};

use super::limits::{MOST_PIECES, Stop};
use super::progression::common_divisor;

/// What is wanted of a dataset and its place in memory, as runs of elements.
pub(super) struct Rows {
    /// Sorted by start.
    pub runs: Vec<Run>,
    /// One-dimensional.
    pub memory: MemoryLayout,
}

/// Appends a run, or extends the last one if the run continues it.
pub(super) fn push(
    runs: &mut Vec<Run>,
    start: u64,
    position: u64,
    length: u64,
) -> Result<(), Stop> {
    if let Some(last) = runs.last_mut()
        && last.start + last.length == start
        && last.position + last.length == position
    {
        last.length += length;
        return Ok(());
    }
    if runs.len() == MOST_PIECES {
        return Err(Stop::too_many());
    }
    runs.push(Run {
        start,
        position,
        length,
    });
    Ok(())
}

impl Rows {
    /// Makes the runs of a selection. Of a grid, keeps only what lies within the bounds (first,
    /// end) along each dimension.
    pub(super) fn new(
        selection: &Selection,
        shape: &[u64],
        memory: &MemoryLayout,
        bounds: &[(u64, u64)],
    ) -> Result<Rows, Stop> {
        let axes = match selection {
            Selection::Grid(axes) => axes,
            Selection::Runs(runs) => {
                let mut runs = runs.clone();
                runs.retain(|run| run.length > 0);
                runs.sort_by_key(|run| run.start);
                return Ok(Rows {
                    runs,
                    memory: memory.clone(),
                });
            }
        };
        let scale = Scale::of(axes, memory);
        let mut runs = vec![Run {
            start: 0,
            position: scale.first,
            length: 1,
        }];
        for (at, (axis, size)) in axes.iter().zip(shape).enumerate() {
            let (from, to) = bounds[at];
            let stride = memory.strides[at];
            let is_unit = i128::from(stride) == i128::from(scale.unit);
            let mut next = Vec::new();
            for run in &runs {
                for ranges in axis.ranges(from, to)? {
                    let is_run = at + 1 == axes.len() && is_unit;
                    let (times, length) = if is_run {
                        (1, ranges.length)
                    } else {
                        (ranges.length, 1)
                    };
                    let pieces = times.saturating_mul(ranges.starts.count);
                    if pieces.saturating_add(next.len() as u64) > MOST_PIECES as u64 {
                        return Err(Stop::too_many());
                    }
                    for (index, place) in ranges.firsts() {
                        for i in 0..times {
                            let moved = scale.units((place + i) as i128, stride);
                            next.push(Run {
                                start: run.start * size + from + index + i,
                                position: (run.position as i128 + moved) as u64,
                                length,
                            });
                        }
                    }
                }
            }
            runs = next;
        }
        runs.sort_by_key(|run| run.start);
        let mut joined = Vec::new();
        for run in runs {
            push(&mut joined, run.start, run.position, run.length)?;
        }
        Ok(Rows {
            runs: joined,
            memory: MemoryLayout {
                base: scale.base,
                length: memory.length,
                strides: vec![scale.unit],
            },
        })
    }
}

/// A common unit for the strides of a memory.
struct Scale {
    /// Offset of the lowest byte of an element.
    base: u64,
    /// Greatest common divisor of the strides.
    unit: i64,
    /// Place of the selection's first element, in units from the base.
    first: u64,
}

impl Scale {
    /// The memory must have room for the selection.
    fn of(axes: &[Axis], memory: &MemoryLayout) -> Scale {
        let mut below = 0i128;
        let mut unit = 0i128;
        for (axis, stride) in axes.iter().zip(&memory.strides) {
            let stride = i128::from(*stride);
            if axis.len() > 1 {
                below += i128::from(axis.len() - 1) * (-stride).max(0);
                unit = common_divisor(unit, stride.abs()).0;
            }
        }
        let unit = unit.max(1);
        Scale {
            base: (i128::from(memory.base) - below) as u64,
            unit: unit as i64,
            first: (below / unit) as u64,
        }
    }

    fn units(&self, position: i128, stride: i64) -> i128 {
        position * i128::from(stride) / i128::from(self.unit)
    }
}

/// One side of a mapping, whose elements are numbered in the order of its selection.
pub(super) enum Numbered {
    Grid {
        axes: Vec<Axis>,
        shape: Vec<u64>,
    },
    /// Sorted by start and, as HDF5's selections are, also by position.
    Runs(Vec<Run>),
}

impl Numbered {
    /// Numbers a selection. `made_for` is the shape of the dataspace in which runs are counted,
    /// `shape` that of the dataset.
    pub(super) fn new(
        selection: &Selection,
        made_for: &[u64],
        shape: &[u64],
    ) -> Result<Numbered, Stop> {
        match selection {
            Selection::Grid(axes) if axes.len() == shape.len() => Ok(Numbered::Grid {
                axes: axes.clone(),
                shape: shape.to_vec(),
            }),
            Selection::Runs(_) if made_for.len() == shape.len() => {
                let mut runs = in_order(selection, made_for)?;
                if made_for != shape {
                    runs = recounted(&runs, made_for, shape)?;
                }
                Ok(Numbered::Runs(runs))
            }
            _ => Err(Stop::other_rank(made_for.len(), shape.len())),
        }
    }

    /// Finds the numbers of the selected ones among the `length` elements from `element` on.
    pub(super) fn numbers(
        &self,
        element: u64,
        length: u64,
        report: Report<'_>,
    ) -> Result<(), Stop> {
        let (axes, shape) = match self {
            Numbered::Grid { axes, shape } => (axes, shape),
            Numbered::Runs(runs) => {
                let sides = |run: &Run| (run.start, run.position);
                return in_runs(runs, sides, (element, length), report).map(drop);
            }
        };
        let Some((last, outer)) = axes.split_last() else {
            return report(0, 0, length);
        };
        let width = shape[outer.len()];
        let mut done = 0;
        while done < length {
            let at = element + done;
            let column = at % width;
            let row = (length - done).min(width - column);
            let mut left = at / width;
            let mut number = Some(0);
            let mut numbers = last.len();
            for (axis, size) in outer.iter().zip(shape).rev() {
                let place = place_of(axis, left % size)?.map(|place| place * numbers);
                number = number.zip(place).map(|(number, place)| number + place);
                left /= size;
                numbers = numbers.saturating_mul(axis.len());
            }
            if let Some(number) = number {
                for ranges in last.ranges(column, column + row)? {
                    for (index, position) in ranges.firsts() {
                        report(done + index, number + position, ranges.length)?;
                    }
                }
            }
            done += row;
        }
        Ok(())
    }

    /// Finds the elements with the `length` numbers from `number` on. Returns an error if the dataset has
    /// no such element.
    pub(super) fn elements(
        &self,
        number: u64,
        length: u64,
        report: Report<'_>,
    ) -> Result<(), Stop> {
        let (axes, shape) = match self {
            Numbered::Grid { axes, shape } => (axes, shape),
            Numbered::Runs(runs) => {
                let sides = |run: &Run| (run.position, run.start);
                let done = in_runs(runs, sides, (number, length), report)?;
                return (done == length).then_some(()).ok_or(Stop::Outside);
            }
        };
        let Some((last, outer)) = axes.split_last() else {
            if number + length > 1 {
                return Err(Stop::Outside);
            }
            return report(0, 0, length);
        };
        let width = last.len();
        if width == 0 {
            return Err(Stop::Outside);
        }
        let mut done = 0;
        while done < length {
            let at = number + done;
            let mut left = at / width;
            let mut element = 0;
            let mut elements = shape[outer.len()];
            for (axis, size) in outer.iter().zip(shape).rev() {
                let (index, _) = index_of(axis, left % axis.len().max(1)).ok_or(Stop::Outside)?;
                if index >= *size {
                    return Err(Stop::Outside);
                }
                element += index * elements;
                left /= axis.len().max(1);
                elements *= size;
            }
            if left > 0 {
                return Err(Stop::Outside);
            }
            let (index, run) = index_of(last, at % width).ok_or(Stop::Outside)?;
            let run = run.min(length - done);
            if index + run > shape[outer.len()] {
                return Err(Stop::Outside);
            }
            report(done, element + index, run)?;
            done += run;
        }
        Ok(())
    }
}

/// Receives each run that was found: its distance from the first value that was looked up, its first value on the other
/// side, and its length.
type Report<'a> = &'a mut dyn FnMut(u64, u64, u64) -> Result<(), Stop>;

/// Finds `length` values from `first` on, which are on one side of runs, and calls `report` with those on the other
/// side. Returns how many values were found.
fn in_runs(
    runs: &[Run],
    sides: impl Fn(&Run) -> (u64, u64),
    (first, length): (u64, u64),
    report: Report<'_>,
) -> Result<u64, Stop> {
    let at = runs.partition_point(|run| sides(run).0 + run.length <= first);
    let (end, mut found) = (first + length, 0);
    for run in &runs[at..] {
        let (here, other) = sides(run);
        if here >= end {
            break;
        }
        let (low, high) = (here.max(first), (here + run.length).min(end));
        report(low - first, other + (low - here), high - low)?;
        found += high - low;
    }
    Ok(found)
}

/// Returns the position of an index. The axes of mappings are slabs.
fn place_of(axis: &Axis, index: u64) -> Result<Option<u64>, Stop> {
    let found = axis.ranges(index, index + 1)?;
    Ok(found.first().map(|ranges| ranges.starts.position))
}

/// Returns the index at a position, and how many consecutive indices follow from there.
fn index_of(axis: &Axis, position: u64) -> Option<(u64, u64)> {
    let left = axis.len().checked_sub(position).filter(|left| *left > 0)?;
    match axis {
        Axis::Slab {
            start,
            stride,
            count,
            block,
        } if *count == 1 || stride == block => Some((start + position, left)),
        Axis::Slab {
            start,
            stride,
            block,
            ..
        } => {
            let inside = position % block;
            Some((start + position / block * stride + inside, block - inside))
        }
        Axis::Runs(_) => None,
    }
}

/// Returns runs of one dataspace, counted in a larger or smaller one, as far as that has their elements.
fn recounted(runs: &[Run], from: &[u64], to: &[u64]) -> Result<Vec<Run>, Stop> {
    let Some(width) = from.last().copied() else {
        return Ok(runs.to_vec());
    };
    let mut recounted = Vec::new();
    for run in runs {
        let mut done = 0;
        while done < run.length {
            let at = run.start + done;
            let column = at % width;
            let row = (run.length - done).min(width - column);
            let mut left = at / width;
            let rank = from.len();
            let mut start = column;
            let mut elements = to[rank - 1];
            let mut inside = row.min(elements.saturating_sub(column));
            for (old, new) in from[..rank - 1].iter().zip(&to[..rank - 1]).rev() {
                if left % old >= *new {
                    inside = 0;
                }
                start += left % old * elements;
                left /= old;
                elements *= new;
            }
            if inside > 0 {
                push(&mut recounted, start, run.position + done, inside)?;
            }
            done += row;
        }
    }
    Ok(recounted)
}
