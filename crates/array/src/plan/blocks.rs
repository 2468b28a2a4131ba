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
    let Selection::Grid(axes) = selection else {
        let elements = shape.iter().product();
        let block = (BLOCK_BYTES / element_size).clamp(1, elements);
        return (vec![elements], vec![block]);
    };
    let mut block = vec![1; shape.len()];
    // Bytes of one index of the current dimension, and bytes from its first to its last selected
    // one.
    let mut row = element_size;
    let mut span = element_size;
    for ((axis, size), side) in axes.iter().zip(shape).zip(&mut block).rev() {
        let (first, last) = (axis.next(0).unwrap_or(0), axis.last().unwrap_or(0));
        let gap = step(axis).saturating_mul(row).saturating_sub(span);
        if gap > MAX_GAP {
            break;
        }
        *side = (BLOCK_BYTES / row).clamp(1, *size);
        if *side < *size {
            break;
        }
        span += (last - first) * row;
        row *= size;
    }
    (shape.to_vec(), block)
}

/// Returns the largest typical distance between neighbouring selected indices of the axis.
fn step(axis: &Axis) -> u64 {
    match axis {
        Axis::Slab { count: 1, .. } => 0,
        Axis::Slab { stride, .. } => *stride,
        Axis::Runs(runs) => {
            let (Some(first), Some(last)) = (axis.next(0), axis.last()) else {
                return 0;
            };
            (last - first) / runs.len().saturating_sub(1).max(1) as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
