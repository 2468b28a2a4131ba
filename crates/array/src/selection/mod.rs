//! Selections of elements as plain data.

mod read;
mod written;

use penstock_engine::error::{Error, Result};

use crate::boxes::{Ranges, Segment};
use crate::reserve::{make_room, push};

/// The selected elements of an array and their order in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every combination of the indices along the axes. The result has as many dimensions as the
    /// array; a single index gives a dimension of size 1.
    Grid(Vec<Axis>),
    /// Arbitrary elements. The result is one-dimensional.
    Runs(Vec<Run>),
}

/// `length` elements or indices from `start`, at the positions from `position` of the result.
/// Elements are counted in C order through the array. Runs are ordered by their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The first element or index.
    pub start: u64,
    /// Its position in the result.
    pub position: u64,
    /// Number of elements or indices.
    pub length: u64,
}

/// Indices along one dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Axis {
    /// `count` blocks of `block` indices, `stride` apart, as in a hyperslab.
    Slab {
        /// First index of the first block.
        start: u64,
        /// Distance from the start of one block to the next.
        stride: u64,
        /// Number of blocks.
        count: u64,
        /// Number of indices in a block.
        block: u64,
    },
    /// Runs of indices, as [`Axis::list`] and [`Axis::mask`] make them: sorted so that no run
    /// starts before the last index of the one before it.
    Runs(Vec<Run>),
}

impl Axis {
    /// Returns all indices of a dimension of this size.
    pub fn all(size: u64) -> Axis {
        Axis::range(0, size)
    }

    /// Returns `count` consecutive indices.
    pub fn range(start: u64, count: u64) -> Axis {
        Axis::Slab {
            start,
            stride: 1,
            count,
            block: 1,
        }
    }

    /// Returns `count` indices, `stride` apart.
    pub fn strided(start: u64, stride: u64, count: u64) -> Axis {
        Axis::Slab {
            start,
            stride,
            count,
            block: 1,
        }
    }

    /// Returns indices in any order; they may repeat.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn list(indices: &[u64]) -> Result<Axis> {
        let mut sorted: Vec<(u64, u64)> = Vec::new();
        make_room(&mut sorted, indices.len())?;
        sorted.extend(indices.iter().copied().zip(0..));
        sorted.sort_unstable();
        let mut runs: Vec<Run> = Vec::new();
        for (start, position) in sorted {
            match runs.last_mut() {
                Some(run)
                    if start - run.start == run.length
                        && position.checked_sub(run.position) == Some(run.length) =>
                {
                    run.length += 1;
                }
                _ => {
                    let run = Run {
                        start,
                        position,
                        length: 1,
                    };
                    push(&mut runs, run)?;
                }
            }
        }
        Ok(Axis::Runs(runs))
    }

    /// Returns the indices at which the mask is true.
    pub fn mask(mask: &[bool]) -> Axis {
        Axis::Runs(true_runs(mask).collect())
    }

    /// Returns the number of indices in the result.
    pub fn len(&self) -> u64 {
        match self {
            Axis::Slab { count, block, .. } => count.saturating_mul(*block),
            Axis::Runs(runs) => runs
                .iter()
                .map(|run| run.position.saturating_add(run.length))
                .max()
                .unwrap_or(0),
        }
    }

    /// Returns whether no index is selected.
    pub fn is_empty(&self) -> bool {
        match self {
            Axis::Slab { count, block, .. } => *count == 0 || *block == 0,
            Axis::Runs(runs) => runs.is_empty(),
        }
    }

    /// Returns the same indices as a range if they are one block or adjacent blocks, else
    /// unchanged.
    pub fn normal(self) -> Axis {
        match self {
            Axis::Slab { count, block, .. } if count == 0 || block == 0 => Axis::range(0, 0),
            Axis::Slab {
                start,
                stride,
                count,
                block,
            } if count == 1 || stride == block => Axis::range(start, count.saturating_mul(block)),
            other => other,
        }
    }

    /// Returns the first index and the number of indices of a normalised range; `None` for other
    /// axes.
    pub fn as_range(&self) -> Option<(u64, u64)> {
        match self {
            Axis::Slab {
                start,
                stride: 1,
                count,
                block: 1,
            } => Some((*start, *count)),
            _ => None,
        }
    }

    /// Returns the length of the longest run of selected indices among `side` consecutive ones, if
    /// none of these have two runs. The axis must be normalised.
    /// Returns the number of runs of consecutive indices, or more.
    pub fn run_count(&self) -> u64 {
        match self {
            Axis::Slab { .. } if self.as_range().is_some() => 1,
            Axis::Slab { count, .. } => *count,
            Axis::Runs(runs) => runs.len() as u64,
        }
    }

    pub(crate) fn longest_run_alone(&self, side: u64) -> Option<u64> {
        match self {
            Axis::Slab {
                stride,
                count,
                block,
                ..
            } => match self.as_range() {
                Some((_, count)) => Some(count.min(side)),
                None if *count <= 1 || stride - block >= side - 1 => Some((*block).min(side)),
                None => None,
            },
            Axis::Runs(runs) => {
                let are_apart = runs.windows(2).all(|pair| {
                    let end = pair[0].start + pair[0].length;
                    pair[1].start >= end && pair[1].start - end >= side - 1
                });
                let longest = runs.iter().map(|run| run.length).max().unwrap_or(0);
                are_apart.then(|| longest.min(side))
            }
        }
    }

    /// Returns whether all indices are below `size` and the description is valid.
    fn fits(&self, size: u64) -> bool {
        match self {
            _ if self.is_empty() => true,
            Axis::Slab {
                start,
                stride,
                count,
                block,
            } => {
                let last = (count - 1)
                    .checked_mul(*stride)
                    .and_then(|n| n.checked_add(*start)?.checked_add(*block));
                (*count == 1 || stride >= block) && last.is_some_and(|end| end <= size)
            }
            Axis::Runs(runs) => {
                let mut before = 0;
                runs.iter().all(|run| {
                    let is_sorted = run.length > 0 && run.start >= before;
                    before = run.start.saturating_add(run.length.saturating_sub(1));
                    is_sorted && before < size && run.position.checked_add(run.length).is_some()
                })
            }
        }
    }

    /// Returns the first selected index that is not below `index`.
    pub fn next(&self, index: u64) -> Option<u64> {
        match self {
            _ if self.is_empty() => None,
            Axis::Slab {
                start,
                stride,
                count,
                block,
            } => {
                let Some(past) = index.checked_sub(*start) else {
                    return Some(*start);
                };
                let step = if *count == 1 { u64::MAX } else { *stride };
                let at = past / step;
                if at < *count && past % step < *block {
                    Some(index)
                } else {
                    (at + 1 < *count).then(|| start + (at + 1) * stride)
                }
            }
            Axis::Runs(runs) => {
                let at = runs.partition_point(|run| run.start + run.length <= index);
                runs.get(at).map(|run| run.start.max(index))
            }
        }
    }

    /// Returns an upper bound of the number of intervals of `side` indices that contain selected
    /// ones.
    pub fn touched(&self, side: u64) -> u64 {
        let (Some(first), Some(last)) = (self.next(0), self.last()) else {
            return 0;
        };
        let between = last / side - first / side + 1;
        match self {
            Axis::Slab { count, block, .. } => {
                between.min(count.saturating_mul(block.div_ceil(side) + 1))
            }
            Axis::Runs(runs) => {
                let each = runs.iter().map(|run| run.length.div_ceil(side) + 1);
                between.min(each.fold(0, u64::saturating_add))
            }
        }
    }

    /// Returns the number of consecutive selected indices that end with the last one. The axis must
    /// not be empty.
    pub fn last_run(&self) -> u64 {
        match self {
            Axis::Slab {
                stride,
                count,
                block,
                ..
            } if stride == block => count * block,
            Axis::Slab { block, .. } => *block,
            Axis::Runs(runs) => runs.last().map_or(0, |run| run.length),
        }
    }

    /// Returns the last selected index.
    pub fn last(&self) -> Option<u64> {
        match self {
            _ if self.is_empty() => None,
            Axis::Slab {
                start,
                stride,
                count,
                block,
            } => Some(start + (count - 1) * stride + block - 1),
            Axis::Runs(runs) => runs.last().map(|run| run.start + run.length - 1),
        }
    }

    /// Returns the selected indices in `from..to`, counted from `from`.
    pub fn ranges(&self, from: u64, to: u64) -> Result<Vec<Ranges>> {
        let mut found = Vec::new();
        match self {
            _ if self.is_empty() => {}
            Axis::Slab {
                start,
                stride,
                count,
                block,
            } => {
                let stride = if *count == 1 { u64::MAX } else { *stride };
                // Returns the range (first, end) of the blocks whose index at `offset` lies in
                // `from..to`.
                let blocks = |offset: u64| {
                    let at = start + offset;
                    let first = from.saturating_sub(at).div_ceil(stride).min(*count);
                    let end = to.saturating_sub(at).div_ceil(stride).min(*count);
                    (first, end.max(first))
                };
                let (first, end) = (blocks(block - 1).0, blocks(0).1);
                if end <= first {
                    return Ok(found);
                }
                let at = |number: u64| {
                    if number == 0 {
                        *start
                    } else {
                        start + number * stride
                    }
                };
                let is_whole = |number: u64| at(number) >= from && at(number) + block <= to;
                let part = |number: u64| {
                    let low = at(number).max(from);
                    let high = (at(number) + block).min(to);
                    let position = number * block + (low - at(number));
                    Ranges::one(low - from, position, high - low)
                };
                if stride == *block {
                    let (low, high) = (part(first), part(end - 1));
                    let length = high.starts.position + high.length - low.starts.position;
                    push(&mut found, Ranges { length, ..low })?;
                    return Ok(found);
                }
                // Blocks that the ends of the range cut, and the whole blocks between them.
                let low = first + u64::from(!is_whole(first));
                let high = (end - u64::from(!is_whole(end - 1))).max(low);
                if low > first {
                    push(&mut found, part(first))?;
                }
                if high > low {
                    let whole = Ranges {
                        starts: Segment {
                            index: at(low) - from,
                            index_step: stride,
                            position: low * block,
                            position_step: *block,
                            count: high - low,
                        },
                        length: *block,
                    };
                    push(&mut found, whole)?;
                }
                if end > high {
                    push(&mut found, part(end - 1))?;
                }
            }
            Axis::Runs(runs) => {
                let first = runs.partition_point(|run| run.start + run.length <= from);
                for run in runs[first..].iter().take_while(|run| run.start < to) {
                    let low = run.start.max(from);
                    let high = (run.start + run.length).min(to);
                    Ranges::one(low - from, run.position + (low - run.start), high - low)
                        .push_to(&mut found)?;
                }
            }
        }
        Ok(found)
    }
}

impl Selection {
    /// Returns all elements of an array of this shape.
    pub fn all(shape: &[u64]) -> Selection {
        Selection::Grid(shape.iter().map(|size| Axis::all(*size)).collect())
    }

    /// Returns the empty selection.
    pub fn none() -> Selection {
        Selection::Runs(Vec::new())
    }

    /// Returns single elements. `coordinates` has one number per dimension of the array for each
    /// element.
    pub fn points(shape: &[u64], coordinates: &[u64]) -> Result<Selection> {
        if shape.is_empty() || !coordinates.len().is_multiple_of(shape.len()) {
            return Err(Error::invalid(format!(
                "{} numbers are not coordinates of points in {} dimensions",
                coordinates.len(),
                shape.len()
            )));
        }
        shape
            .iter()
            .try_fold(1u64, |all, size| all.checked_mul(*size))
            .ok_or_else(|| too_large(shape))?;
        let mut runs = Vec::new();
        make_room(&mut runs, coordinates.len() / shape.len())?;
        for point in coordinates.chunks_exact(shape.len()) {
            if point.iter().zip(shape).any(|(at, size)| at >= size) {
                return Err(Error::invalid(format!(
                    "the point {point:?} is outside the shape {shape:?}"
                )));
            }
            // Smaller than the number of elements, which was checked to fit.
            let start = point
                .iter()
                .zip(shape)
                .fold(0, |all, (at, size)| all * size + at);
            push_run(&mut runs, start, 1);
        }
        Ok(Selection::Runs(runs))
    }

    /// Returns the elements at which `mask`, which has the array's shape, is true.
    pub fn mask(mask: &[bool]) -> Selection {
        Selection::Runs(true_runs(mask).collect())
    }

    /// Returns the number of elements in the result; `None` if it overflows. For runs it is the end
    /// of the highest position.
    pub fn len(&self) -> Option<u64> {
        match self {
            Selection::Grid(axes) if axes.iter().any(Axis::is_empty) => Some(0),
            Selection::Grid(axes) => axes
                .iter()
                .try_fold(1u64, |all, axis| all.checked_mul(axis.len())),
            Selection::Runs(runs) => runs
                .iter()
                .map(|run| run.position.checked_add(run.length))
                .try_fold(0, |most, end| Some(end?.max(most))),
        }
    }

    /// Returns the number of selected elements; `None` if it overflows.
    pub fn elements(&self) -> Option<u64> {
        match self {
            Selection::Grid(_) => self.len(),
            Selection::Runs(runs) => runs
                .iter()
                .try_fold(0u64, |all, run| all.checked_add(run.length)),
        }
    }

    /// Returns whether no element is selected.
    pub fn is_empty(&self) -> bool {
        match self {
            Selection::Grid(axes) => axes.iter().any(Axis::is_empty),
            Selection::Runs(runs) => runs.iter().all(|run| run.length == 0),
        }
    }

    /// Returns the shape of the result; `None` if its size overflows.
    pub fn shape(&self) -> Option<Vec<u64>> {
        match self {
            Selection::Grid(axes) => Some(axes.iter().map(Axis::len).collect()),
            Selection::Runs(_) => Some(vec![self.len()?]),
        }
    }

    /// Returns an error unless the selection lies inside an array of this shape.
    pub fn check(&self, shape: &[u64]) -> Result<()> {
        match self {
            Selection::Grid(axes) => {
                if axes.len() != shape.len() {
                    return Err(Error::invalid(format!(
                        "the selection has {} dimensions, but the dataset has {}",
                        axes.len(),
                        shape.len()
                    )));
                }
                for (at, (axis, size)) in axes.iter().zip(shape).enumerate() {
                    if !axis.fits(*size) {
                        return Err(Error::invalid(format!(
                            "the selection extends past dimension {at}, whose size is {size}"
                        )));
                    }
                }
                Ok(())
            }
            // An empty selection fits any shape.
            Selection::Runs(_) if self.is_empty() => Ok(()),
            Selection::Runs(runs) => {
                let elements = shape
                    .iter()
                    .try_fold(1u64, |all, size| all.checked_mul(*size))
                    .ok_or_else(|| too_large(shape))?;
                let is_inside = |run: &Run| {
                    run.start
                        .checked_add(run.length)
                        .is_some_and(|end| end <= elements)
                        && run.position.checked_add(run.length).is_some()
                };
                match runs.iter().find(|run| !is_inside(run)) {
                    None => Ok(()),
                    Some(run) => Err(Error::invalid(format!(
                        "the selection takes {} elements from {} on, but the dataset has {elements}",
                        run.length, run.start
                    ))),
                }
            }
        }
    }
}

/// Appends elements that directly follow the last ones in the result.
pub fn push_run(runs: &mut Vec<Run>, start: u64, length: u64) {
    let mut position = 0;
    if let Some(last) = runs.last_mut() {
        if last.start + last.length == start {
            last.length += length;
            return;
        }
        position = last.position + last.length;
    }
    runs.push(Run {
        start,
        position,
        length,
    });
}

fn true_runs(mask: &[bool]) -> impl Iterator<Item = Run> + '_ {
    let mut at = 0;
    let mut position = 0;
    std::iter::from_fn(move || {
        let start = at + mask.get(at..)?.iter().position(|is| *is)?;
        let length = mask[start..]
            .iter()
            .position(|is| !is)
            .unwrap_or(mask.len() - start);
        at = start + length;
        let run = Run {
            start: start as u64,
            position,
            length: length as u64,
        };
        position += length as u64;
        Some(run)
    })
}

fn too_large(shape: &[u64]) -> Error {
    Error::invalid(format!(
        "the number of elements of a dataset of shape {shape:?} overflows"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns every index with its position, ordered by position.
    fn indices(axis: &Axis) -> Vec<(u64, u64)> {
        let mut all = match axis {
            Axis::Slab {
                start,
                stride,
                count,
                block,
            } => (0..*count)
                .flat_map(|b| (0..*block).map(move |i| (start + b * stride + i, b * block + i)))
                .collect(),
            Axis::Runs(runs) => runs
                .iter()
                .flat_map(|r| (0..r.length).map(|i| (r.start + i, r.position + i)))
                .collect::<Vec<_>>(),
        };
        all.sort_by_key(|pair| pair.1);
        all
    }

    fn axes() -> impl Strategy<Value = Axis> {
        prop_oneof![
            (0..20u64, 1..9u64, 0..9u64, 1..9u64).prop_map(|(start, gap, count, block)| {
                Axis::Slab {
                    start,
                    stride: block + gap - 1,
                    count,
                    block,
                }
            }),
            prop::collection::vec(0..60u64, 0..20).prop_map(|list| Axis::list(&list).unwrap()),
            prop::collection::vec(any::<bool>(), 0..60).prop_map(|mask| Axis::mask(&mask)),
        ]
    }

    proptest! {
        #[test]
        fn ranges_are_the_selected_indices_of_the_range(
            axis in axes(), from in 0..80u64, length in 0..50u64
        ) {
            let axis = axis.normal();
            let to = from + length;
            let mut expected: Vec<(u64, u64)> = indices(&axis)
                .into_iter()
                .filter(|(index, _)| (from..to).contains(index))
                .map(|(index, position)| (index - from, position))
                .collect();
            let mut found: Vec<(u64, u64)> = axis
                .ranges(from, to)
                .unwrap()
                .iter()
                .flat_map(|ranges| ranges.firsts().map(|first| (first, ranges.length)))
                .flat_map(|((index, position), length)| {
                    (0..length).map(move |i| (index + i, position + i))
                })
                .collect();
            expected.sort();
            found.sort();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn next_and_last_agree_with_the_indices(axis in axes(), index in 0..200u64) {
            let all = indices(&axis);
            let next = all.iter().map(|p| p.0).filter(|i| *i >= index).min();
            prop_assert_eq!(axis.next(index), next);
            prop_assert_eq!(axis.last(), all.iter().map(|p| p.0).max());
            prop_assert_eq!(axis.len(), all.len() as u64);
        }
    }

    #[test]
    fn a_list_comes_out_in_its_own_order() {
        let axis = Axis::list(&[7, 3, 4, 5, 3]).unwrap();
        let order: Vec<u64> = indices(&axis).iter().map(|p| p.0).collect();
        assert_eq!(order, [7, 3, 4, 5, 3]);
    }

    #[test]
    fn selections_outside_the_dataset_are_errors() {
        let slab = |start, stride, count, block| {
            Selection::Grid(vec![Axis::Slab {
                start,
                stride,
                count,
                block,
            }])
        };
        let run = |start, length| {
            Selection::Runs(vec![Run {
                start,
                position: 0,
                length,
            }])
        };
        for outside in [
            slab(0, 1, 11, 1),
            slab(u64::MAX, 1, 2, 1),
            slab(0, u64::MAX, 3, 1),
            slab(0, 1, u64::MAX, u64::MAX),
            slab(0, 1, 3, 2),
            Selection::Grid(vec![Axis::list(&[10]).unwrap()]),
            Selection::Grid(vec![Axis::list(&[u64::MAX]).unwrap()]),
            Selection::Grid(vec![]),
            run(10, 1),
            run(u64::MAX, 2),
        ] {
            assert!(outside.check(&[10]).is_err(), "{outside:?}");
        }
        slab(9, 1, 1, 1).check(&[10]).unwrap();
        run(0, 10).check(&[10]).unwrap();
        assert!(Selection::points(&[2, 2], &[0, 2]).is_err());
        assert!(Selection::points(&[2, 2], &[0]).is_err());
        // The element count of this shape overflows.
        let huge = [u64::MAX, 2];
        assert!(Selection::points(&huge, &[u64::MAX / 2, 1, 0, 0]).is_err());
    }
}
