//! Any selection and destination, and what each selected element of a dataset is.

use penstock_array::{Axis, MemoryLayout, Run, Selection};
use proptest::prelude::*;

/// Index of each selected element along its axis, in the order of the result.
fn indices(axis: &Axis) -> Vec<u64> {
    match axis {
        Axis::Slab {
            start,
            stride,
            count,
            block,
        } => (0..*count)
            .flat_map(|b| (0..*block).map(move |i| start + b * stride + i))
            .collect(),
        Axis::Runs(runs) => {
            let mut out = vec![0; axis.len() as usize];
            for run in runs {
                for i in 0..run.length {
                    out[(run.position + i) as usize] = run.start + i;
                }
            }
            out
        }
    }
}

/// Source element and position along each dimension of the result, for each selected element.
pub fn selected(selection: &Selection, shape: &[u64]) -> Vec<(u64, Vec<u64>)> {
    match selection {
        Selection::Runs(runs) => runs
            .iter()
            .flat_map(|r| (0..r.length).map(|i| (r.start + i, vec![r.position + i])))
            .collect(),
        Selection::Grid(axes) => {
            let mut all = vec![(0, Vec::new())];
            for (axis, size) in axes.iter().zip(shape) {
                let along = indices(axis);
                all = all
                    .iter()
                    .flat_map(|(source, position)| {
                        along.iter().zip(0..).map(move |(index, at)| {
                            let mut position: Vec<u64> = position.clone();
                            position.push(at);
                            (source * size + index, position)
                        })
                    })
                    .collect();
            }
            all
        }
    }
}

fn axis(size: u64) -> BoxedStrategy<Axis> {
    let list = prop::collection::vec(0..size.max(1), 0..6)
        .prop_map(move |list| Axis::list(if size == 0 { &[] } else { &list }).unwrap());
    let mask =
        prop::collection::vec(any::<bool>(), size as usize).prop_map(|mask| Axis::mask(&mask));
    let slab =
        (0..=size, 1..5u64, 0..6u64, 1..4u64).prop_map(move |(start, stride, count, block)| {
            let block = block.min(size - start).max(1);
            let stride = stride.max(block);
            let room = (size - start) / stride + u64::from((size - start) % stride >= block);
            Axis::Slab {
                start,
                stride,
                count: count.min(room),
                block,
            }
        });
    prop_oneof![Just(Axis::all(size)), slab, list, mask].boxed()
}

pub fn selection(shape: Vec<u64>) -> BoxedStrategy<Selection> {
    let elements: u64 = shape.iter().product();
    let grid: Vec<_> = shape.iter().map(|size| axis(*size)).collect();
    let points = prop::collection::vec(0..elements.max(1), 0..20).prop_map(move |points| {
        let points = points.iter().zip(0..).filter(|_| elements > 0);
        let run = |(source, position): (&u64, u64)| Run {
            start: *source,
            position,
            length: 1,
        };
        Selection::Runs(points.map(run).collect())
    });
    let mask = prop::collection::vec(any::<bool>(), elements as usize)
        .prop_map(|mask| Selection::mask(&mask));
    let runs = (0..=elements, 0..=elements).prop_map(|(one, other)| {
        Selection::Runs(vec![Run {
            start: one.min(other),
            position: 0,
            length: one.abs_diff(other),
        }])
    });
    prop_oneof![4 => grid.prop_map(Selection::Grid), 1 => points, 1 => mask, 1 => runs].boxed()
}

/// A destination of the right shape: dense, or with gaps and axes that run backwards.
pub fn destination(shape: &[u64], memory: u64, gaps: &[u64], backwards: u8) -> MemoryLayout {
    let mut bytes = memory;
    let mut base = 3;
    let mut strides = vec![0; shape.len()];
    for (at, (stride, size)) in strides.iter_mut().zip(shape).enumerate().rev() {
        bytes += gaps[at % gaps.len()];
        *stride = bytes as i64;
        if backwards >> at & 1 == 1 && *size > 0 {
            base += (size - 1) * bytes;
            *stride = -(bytes as i64);
        }
        bytes *= (*size).max(1);
    }
    MemoryLayout {
        base,
        length: base + bytes + 3,
        strides,
    }
}
