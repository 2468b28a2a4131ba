//! Selections element by element: slow, and plain enough to be right.

use penstock_array::{Axis, Selection};

/// Selections up to this size are compared with their model.
pub const MOST: u64 = 1024;

/// The elements that a selection takes, without running out of numbers.
pub fn count(selection: &Selection) -> u128 {
    match selection {
        Selection::Grid(axes) => axes
            .iter()
            .map(indices_of)
            .fold(1, |all: u128, n| all.saturating_mul(n)),
        Selection::Runs(runs) => runs.iter().map(|run| u128::from(run.length)).sum(),
    }
}

fn indices_of(axis: &Axis) -> u128 {
    match axis {
        Axis::Slab { count, block, .. } => u128::from(*count) * u128::from(*block),
        Axis::Runs(runs) => runs.iter().map(|run| u128::from(run.length)).sum(),
    }
}

/// Each index of an axis and where it comes out.
fn indices(axis: &Axis) -> Vec<(u64, u64)> {
    match axis {
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
            .flat_map(|run| (0..run.length).map(|i| (run.start + i, run.position + i)))
            .collect(),
    }
}

/// One selected element: its index in the dataset and where it comes out.
pub struct Element {
    pub index: Vec<u64>,
    pub position: Vec<u64>,
}

/// All elements of a selection that lies inside the shape, at most [`MOST`]; runs in the order in
/// which they are listed.
pub fn elements(selection: &Selection, shape: &[u64]) -> Vec<Element> {
    match selection {
        Selection::Runs(runs) => runs
            .iter()
            .flat_map(|run| (0..run.length).map(|i| (run.start + i, run.position + i)))
            .map(|(start, position)| Element {
                index: index(start, shape),
                position: vec![position],
            })
            .collect(),
        Selection::Grid(axes) => {
            let mut all = vec![Element {
                index: Vec::new(),
                position: Vec::new(),
            }];
            if count(selection) == 0 {
                all.clear();
            }
            for axis in axes {
                if all.is_empty() {
                    break;
                }
                let along = indices(axis);
                all = all
                    .iter()
                    .flat_map(|outer| {
                        along.iter().map(|(index, position)| Element {
                            index: [&outer.index[..], &[*index]].concat(),
                            position: [&outer.position[..], &[*position]].concat(),
                        })
                    })
                    .collect();
            }
            all
        }
    }
}

fn index(number: u64, shape: &[u64]) -> Vec<u64> {
    let mut left = number;
    let mut index = vec![0; shape.len()];
    for (at, size) in index.iter_mut().zip(shape).rev() {
        *at = left % size;
        left /= size;
    }
    index
}

/// The number of an element in C order.
pub fn number(index: &[u64], shape: &[u64]) -> u64 {
    index
        .iter()
        .zip(shape)
        .fold(0, |all, (at, size)| all * size + at)
}
