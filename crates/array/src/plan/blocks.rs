//! Contiguous data cut into blocks as if it were chunked: each block is one range of the file.

use crate::selection::{Axis, Selection};

/// Upper bound of a block's size, unless a single index of the outermost dimension is larger.
const BLOCK_BYTES: u64 = 4 << 20;
/// Largest gap between selected elements that is cheaper to read than to skip.
const MAX_GAP: u64 = 32 << 10;

/// Returns the shape of the array and of a block of it: 1 along outer dimensions, full along inner
/// ones. A selection of runs treats the array as one-dimensional.
pub(crate) fn shape(
    shape: &[u64],
    selection: &Selection,
    element_size: u64,
) -> (Vec<u64>, Vec<u64>) {
    let axes = match selection {
        Selection::Grid(axes) => axes,
        Selection::Runs(runs) => {
            let elements: u64 = shape.iter().product();
            let most = (BLOCK_BYTES / element_size).clamp(1, elements);
            let spacing = Spacing::of_runs(runs.iter().map(|run| (run.start, run.length)));
            let is_far = spacing.gap.saturating_mul(element_size) > MAX_GAP;
            let block = if is_far { spacing.side() } else { most };
            return (vec![elements], vec![block.min(most)]);
        }
    };
    let mut block = vec![1; shape.len()];
    // Bytes of one index of the current dimension, and bytes from its first to its last selected
    // one.
    let mut row = element_size;
    let mut span = element_size;
    for ((axis, size), side) in axes.iter().zip(shape).zip(&mut block).rev() {
        let (first, last) = (axis.next(0).unwrap_or(0), axis.last().unwrap_or(0));
        let spacing = Spacing::of(axis);
        // Bytes between the selected ones of two indices that follow each other.
        let between = row.saturating_sub(span);
        if spacing.run > 1 && between > MAX_GAP {
            break;
        }
        let most = (BLOCK_BYTES / row).clamp(1, *size);
        let gap = spacing.gap.saturating_mul(row).saturating_add(between);
        if spacing.is_repeated && gap > MAX_GAP {
            *side = spacing.side().min(most);
            break;
        }
        *side = most;
        if *side < *size {
            break;
        }
        span += (last - first) * row;
        row *= size;
    }
    (shape.to_vec(), block)
}

/// The typical distances along an axis, in indices.
struct Spacing {
    /// Length of a run of consecutive selected indices.
    run: u64,
    /// Number of indices between two runs.
    gap: u64,
    /// Whether there are two runs or more.
    is_repeated: bool,
}

impl Spacing {
    /// The axis must be normalised.
    fn of(axis: &Axis) -> Spacing {
        match axis {
            Axis::Slab {
                stride,
                count,
                block,
                ..
            } => match axis.as_range() {
                Some((_, run)) => Spacing {
                    run,
                    gap: 0,
                    is_repeated: false,
                },
                None => Spacing {
                    run: *block,
                    gap: stride.saturating_sub(*block),
                    is_repeated: *count > 1,
                },
            },
            Axis::Runs(runs) => Spacing::of_runs(runs.iter().map(|run| (run.start, run.length))),
        }
    }

    /// Runs have a start and a length; they may be in any order.
    fn of_runs(runs: impl Iterator<Item = (u64, u64)>) -> Spacing {
        let (mut number, mut selected, mut first, mut end) = (0u64, 0u64, u64::MAX, 0);
        for (start, length) in runs.filter(|(_, length)| *length > 0) {
            number += 1;
            selected = selected.saturating_add(length);
            first = first.min(start);
            end = end.max(start + length);
        }
        let between = end.saturating_sub(first).saturating_sub(selected);
        Spacing {
            run: selected / number.max(1),
            gap: between / number.saturating_sub(1).max(1),
            is_repeated: number > 1,
        }
    }

    /// Returns the side of blocks none of which has indices of two runs that are as far apart as is
    /// typical. A few times the length of a run, so that the end of a block cuts few of them.
    fn side(&self) -> u64 {
        let side = self.run.saturating_mul(4).saturating_sub(3).max(1);
        side.min(self.gap + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::Run;

    fn block(shape: &[u64], axes: Vec<Axis>) -> Vec<u64> {
        super::shape(shape, &Selection::Grid(axes), 4).1
    }

    #[test]
    fn a_dense_selection_is_cut_into_blocks_of_whole_rows() {
        let all = [1000, 1000, 100].map(Axis::all).to_vec();
        assert_eq!(block(&[1000, 1000, 100], all), [10, 1000, 100]);
    }

    #[test]
    fn every_second_row_is_read_together_with_the_rows_between() {
        let axes = vec![Axis::strided(0, 2, 500), Axis::all(1000)];
        assert_eq!(block(&[1000, 1000], axes), [1000, 1000]);
    }

    #[test]
    fn far_columns_are_read_row_by_row() {
        let axes = vec![Axis::all(1000), Axis::range(5, 2)];
        assert_eq!(block(&[1000, 100_000], axes), [1, 100_000]);
        let axes = vec![Axis::all(1000), Axis::strided(0, 50_000, 2)];
        assert_eq!(block(&[1000, 100_000], axes), [1, 1]);
    }

    fn slab(stride: u64, count: u64, block: u64) -> Axis {
        Axis::Slab {
            start: 0,
            stride,
            count,
            block,
        }
    }

    #[test]
    fn a_block_of_a_hyperslab_is_not_read_element_by_element() {
        // Gaps of 4 KB, of 40 KB and of 400 KB.
        assert_eq!(
            block(&[10_000_000], vec![slab(10_000, 1000, 9000)]),
            [1 << 20]
        );
        assert_eq!(
            block(&[10_000_000], vec![slab(30_000, 300, 20_000)]),
            [10_001]
        );
        assert_eq!(block(&[10_000_000], vec![slab(101_000, 90, 1000)]), [3997]);
        let rows = vec![slab(300, 3, 100), Axis::all(1000)];
        assert_eq!(block(&[1000, 1000], rows), [201, 1000]);
    }

    #[test]
    fn runs_that_lie_far_apart_are_read_one_by_one() {
        let side = |step: usize, length| {
            let points: Vec<u64> = (0..1_000_000u64).step_by(step).collect();
            let starts = points.iter().rev().copied();
            let run = |(at, start)| Run {
                start,
                position: at * length,
                length,
            };
            let runs = (0..).zip(starts).map(run).collect();
            super::shape(&[1000, 2000], &Selection::Runs(runs), 4).1
        };
        assert_eq!(side(1000, 10), [1 << 20], "what lies between is read, too");
        assert_eq!(side(10_000, 1), [1]);
        assert_eq!(side(20_000, 100), [397]);
    }

    #[test]
    fn long_runs_of_a_list_are_not_read_element_by_element() {
        let list: Vec<u64> = (0..1000).chain(200_000..201_000).collect();
        let axes = vec![Axis::list(&list).unwrap()];
        assert_eq!(block(&[1_000_000], axes), [3997]);
    }
}
