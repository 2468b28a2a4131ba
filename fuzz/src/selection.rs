//! Selections, and a selection of the file matched with one of memory.

use penstock_array::{Axis, MemorySize, Selection, match_selections};

use crate::cases::{self, axis, dense_runs, shape};
use crate::draw::Draw;
use crate::model::{self, MOST};

/// Matches any two selections. Where they match, the n-th element of the one goes to the
/// n-th of the other.
pub fn fuzz_selection(data: &[u8]) {
    let draw = &mut Draw(data);
    let (file_shape, memory_shape) = (shape(draw), shape(draw));
    let is_sound = draw.byte() < 192;
    let (file, memory) = if is_sound {
        (sound(draw, &file_shape), sound(draw, &memory_shape))
    } else {
        (
            cases::selection(draw, &file_shape),
            cases::selection(draw, &memory_shape),
        )
    };
    let element = draw.number();
    for (selection, shape) in [(&file, &file_shape), (&memory, &memory_shape)] {
        let _ = (selection.len(), selection.shape(), selection.is_empty());
        let is_inside = selection.check(shape).is_ok();
        if is_inside && model::count(selection) <= MOST.into() {
            for element in model::elements(selection, shape) {
                assert!(element.index.iter().zip(shape).all(|(at, size)| at < size));
            }
        }
    }
    if model::count(&file).max(model::count(&memory)) > MOST.into() {
        return;
    }
    let matched = match_selections(
        &file,
        &file_shape,
        &memory,
        &memory_shape,
        MemorySize(element),
    );
    let Ok((selection, layout)) = matched else {
        return;
    };
    // Only a position for each element, without gaps, is an order.
    if !is_sound {
        return;
    }
    let expected = in_order(&file, &file_shape)
        .into_iter()
        .zip(in_order(&memory, &memory_shape))
        .map(|(from, to)| {
            let to = model::number(&to, &memory_shape);
            (from, i128::from(to) * i128::from(element))
        });
    let mut expected: Vec<_> = expected.collect();
    let mut found: Vec<_> = model::elements(&selection, &file_shape)
        .iter()
        .map(|at| {
            let steps = at.position.iter().zip(&layout.strides);
            let offset: i128 = steps.map(|(p, s)| i128::from(*p) * i128::from(*s)).sum();
            (at.index.clone(), i128::from(layout.base) + offset)
        })
        .collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    for (_, offset) in found {
        assert!(offset >= 0 && offset + i128::from(element) <= layout.length.into());
    }
}

/// A selection as HDF5 or one of the constructors makes it, though it may lie outside.
fn sound(draw: &mut Draw, shape: &[u64]) -> Selection {
    let elements = shape
        .iter()
        .fold(1u64, |all, size| all.saturating_mul(*size));
    match draw.choice(4) {
        0 => Selection::Runs(dense_runs(draw, elements)),
        1 => Selection::mask(&draw.list(64, Draw::flag)),
        _ => {
            let axes = shape.iter().map(|size| match axis(draw, *size) {
                Axis::Runs(runs) => {
                    // As a list, which has neither gaps nor two indices in one place.
                    let indices = runs.iter().map(|run| run.start);
                    Axis::list(&indices.collect::<Vec<_>>()).unwrap()
                }
                slab => slab,
            });
            Selection::Grid(axes.collect())
        }
    }
}

/// The index of each element, in the order in which they come out.
fn in_order(selection: &Selection, shape: &[u64]) -> Vec<Vec<u64>> {
    let mut elements = model::elements(selection, shape);
    elements.sort_by(|one, other| one.position.cmp(&other.position));
    elements.into_iter().map(|at| at.index).collect()
}
