//! Hyperslabs with blocks of several elements: a run of elements that adjoin in the file and in memory is
//! one piece of a plan.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;

use penstock_array::{
    Axis, BoxRun, ChunkGrid, ChunkTable, ElementMapping, MemoryLayout, MemorySize, Plan, PlanJob,
    Selection, Source, StoredArray, StoredSize, in_order,
};
use penstock_engine::file::position::Operation;

/// Bytes of an element.
const ELEMENT: u64 = 4;
/// Of these, gaps of a few are skipped.
const LARGE_ELEMENT: u64 = 10_000;
const CONTIGUOUS: Source = Source::Contiguous { offset: 0 };

fn slab(start: u64, stride: u64, count: u64, block: u64) -> Axis {
    Axis::Slab {
        start,
        stride,
        count,
        block,
    }
}

fn chunked(shape: &[u64], chunk: &[u64], element: u64) -> Source {
    let grid = ChunkGrid::new(shape, chunk).unwrap();
    let size = grid.elements() * element;
    let end = grid.total() * size;
    Source::Chunks(Arc::new(ChunkTable::in_order(grid, 0, size, end).unwrap()))
}

/// Plans a write from memory in which the selected elements follow each other.
fn plan(shape: &[u64], source: Source, axes: Vec<Axis>) -> Arc<Plan> {
    plan_of(shape, source, axes, ELEMENT)
}

fn plan_of(shape: &[u64], source: Source, axes: Vec<Axis>, element: u64) -> Arc<Plan> {
    let array = StoredArray::new("numbers", shape, StoredSize(element), source);
    let size = MemorySize(element);
    let selection = Selection::Grid(axes);
    let memory = MemoryLayout::dense(&selection.shape().unwrap(), size).unwrap();
    let element = ElementMapping::whole(size);
    Arc::new(Plan::new(&array, selection, &memory, element, Operation::Write).unwrap())
}

/// Returns the address of each job's chunk with the job's runs.
fn runs_by_job(plan: &Arc<Plan>) -> Vec<(u64, Vec<BoxRun>)> {
    let jobs = plan.works().map(|work| match work.unwrap() {
        PlanJob::Chunk(job) => job,
        PlanJob::Fill(_) => panic!("every chunk is stored"),
    });
    let runs = jobs.map(|job| {
        let boxes = job.boxes(plan);
        let runs = boxes.flat_map(|strided| strided.runs().collect::<Vec<_>>());
        (job.address, runs.collect())
    });
    runs.collect()
}

/// Returns the numbers of jobs and of runs.
fn counts(plan: &Arc<Plan>) -> (usize, usize) {
    let jobs = runs_by_job(plan);
    (jobs.len(), jobs.iter().map(|(_, runs)| runs.len()).sum())
}

#[test]
fn blocks_that_lie_close_together_are_a_piece_each() {
    let axes = || vec![slab(0, 300, 3000, 100)];
    assert_eq!(counts(&plan(&[1 << 20], CONTIGUOUS, axes())), (1, 3000));
    // Ends of chunks cut blocks.
    let (jobs, runs) = counts(&plan(
        &[1 << 20],
        chunked(&[1 << 20], &[1 << 16], ELEMENT),
        axes(),
    ));
    assert_eq!(jobs, 14);
    assert!((3000..3014).contains(&runs), "{runs} pieces");
}

#[test]
fn blocks_that_lie_far_apart_are_two_jobs_each_at_most() {
    let far = vec![slab(0, 300_000, 34, 100_000)];
    let (jobs, runs) = counts(&plan(&[10 << 20], CONTIGUOUS, far));
    assert_eq!(jobs, runs);
    assert!((34..=68).contains(&jobs), "{jobs} jobs");
    let rows = vec![slab(0, 100, 10, 8), Axis::all(4096)];
    let (jobs, runs) = counts(&plan(&[1000, 4096], CONTIGUOUS, rows));
    assert_eq!(jobs, runs);
    assert!((10..=20).contains(&jobs), "{jobs} jobs");
}

#[test]
fn a_write_of_blocks_that_lie_far_apart_writes_nothing_between_them() {
    let is_rewritten = |shape: &[u64], axes| plan(shape, CONTIGUOUS, axes).rewritten().is_some();
    assert!(!is_rewritten(
        &[10 << 20],
        vec![slab(0, 300_000, 34, 100_000)]
    ));
    let rows = vec![slab(0, 100, 10, 8), Axis::all(4096)];
    assert!(!is_rewritten(&[1000, 4096], rows));
    assert!(is_rewritten(&[1 << 20], vec![slab(0, 300, 3000, 100)]));
    let parts_of_rows = vec![slab(0, 100, 10, 8), Axis::range(0, 4000)];
    assert!(is_rewritten(&[1000, 4096], parts_of_rows));
}

#[test]
fn blocks_of_rows_are_a_piece_each() {
    let axes = || vec![slab(1, 5, 19, 3), Axis::all(10)];
    assert_eq!(counts(&plan(&[100, 10], CONTIGUOUS, axes())).1, 19);
    let source = chunked(&[100, 10], &[50, 10], ELEMENT);
    assert_eq!(counts(&plan(&[100, 10], source, axes())).1, 19);
}

#[test]
fn a_selection_in_order_has_a_run_for_each_block() {
    let blocks = Selection::Grid(vec![slab(1, 30, 300, 10)]);
    assert_eq!(in_order(&blocks, &[10_000]).unwrap().len(), 300);
}

/// A dimension: its size, the side of a chunk and the selected indices.
fn dimension() -> impl Strategy<Value = (u64, u64, Axis)> {
    let blocks = (0..4u64, 1..7u64, 0..4u64, 1..9u64, 0..4u64, 1..20u64);
    let blocks = blocks.prop_map(|(start, block, gap, count, rest, side)| {
        let stride = block + gap;
        let size = start + (count - 1) * stride + block + rest;
        (size, side, slab(start, stride, count, block))
    });
    let list = (prop::collection::btree_set(0..20u64, 1..20), 1..20u64);
    let list = list.prop_map(|(list, side)| {
        let list: Vec<u64> = list.into_iter().collect();
        (20, side, Axis::list(&list).unwrap())
    });
    prop_oneof![3 => blocks, 1 => list]
}

/// Returns the selected indices in order.
fn indices(axis: &Axis) -> Vec<u64> {
    match axis {
        Axis::Slab {
            start,
            stride,
            count,
            block,
        } => (0..*count)
            .flat_map(|at| (0..*block).map(move |i| start + at * stride + i))
            .collect(),
        Axis::Runs(runs) => runs
            .iter()
            .flat_map(|run| run.start..run.start + run.length)
            .collect(),
    }
}

proptest! {
    #[test]
    fn every_element_is_in_one_piece_and_no_pieces_of_a_row_adjoin(
        dimensions in prop::collection::vec(dimension(), 1..4), is_chunked in any::<bool>(), is_large in any::<bool>()
    ) {
        let element = if is_large { LARGE_ELEMENT } else { ELEMENT };
        let shape: Vec<u64> = dimensions.iter().map(|(size, ..)| *size).collect();
        let chunk: Vec<u64> = dimensions.iter().map(|(size, side, _)| *side.min(size)).collect();
        let axes: Vec<Axis> = dimensions.iter().map(|(.., axis)| axis.clone()).collect();
        // The number of each element in the array, in order of memory.
        let mut elements = vec![0];
        for (axis, size) in axes.iter().zip(&shape) {
            let mut next = Vec::new();
            for outer in elements {
                next.extend(indices(axis).iter().map(|index| outer * size + index));
            }
            elements = next;
        }
        let expected: HashMap<u64, u64> = elements.into_iter().zip(0..).collect();

        let source = if is_chunked { chunked(&shape, &chunk, element) } else { CONTIGUOUS };
        let grid = ChunkGrid::new(&shape, &chunk).unwrap();
        let side = chunk[chunk.len() - 1];
        let width = shape[shape.len() - 1];
        let mut found = HashMap::new();
        for (address, runs) in runs_by_job(&plan_of(&shape, source, axes, element)) {
            // Returns the number in the array of an element of the job.
            let number = |inside: u64| {
                if !is_chunked {
                    return address / element + inside;
                }
                let coordinates = grid.coordinates(address / element / grid.elements());
                let (mut left, mut below, mut number) = (inside, 1, 0);
                for ((at, side), size) in coordinates.iter().zip(&chunk).zip(&shape).rev() {
                    number += (at * side + left % side) * below;
                    left /= side;
                    below *= size;
                }
                number
            };
            let mut ends = HashSet::new();
            for run in &runs {
                for at in 0..run.elements {
                    let before = found.insert(number(run.chunk / element + at), run.memory / element + at);
                    prop_assert_eq!(before, None, "an element is in two pieces");
                }
                let length = run.elements * element;
                ends.insert((run.chunk + length, run.memory + length));
            }
            for run in &runs {
                let inside = run.chunk / element;
                let is_start_of_row = if is_chunked {
                    inside % side == 0
                } else {
                    number(inside) % width == 0
                };
                prop_assert!(
                    is_start_of_row || !ends.contains(&(run.chunk, run.memory)),
                    "{:?} continues another piece", run
                );
            }
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn the_rows_of_a_selection_are_counted_from_the_dimensions_that_are_not_whole() {
    let rows = |shape: &[u64], axes| plan(shape, CONTIGUOUS, axes).rows_at_most();
    let list = || Axis::list(&[7, 2, 3, 30]).unwrap();
    assert_eq!(rows(&[40, 6], vec![list(), Axis::all(6)]), Some(3));
    assert_eq!(rows(&[40, 6], vec![list(), Axis::range(1, 2)]), Some(4));
    assert_eq!(
        rows(&[40, 6], vec![Axis::range(3, 9), Axis::all(6)]),
        Some(1)
    );
    assert_eq!(
        rows(&[40, 6], vec![Axis::all(40), Axis::strided(1, 2, 3)]),
        Some(120)
    );
    let chunks = chunked(&[40], &[8], ELEMENT);
    assert_eq!(plan(&[40], chunks, vec![list()]).rows_at_most(), None);
}

#[test]
fn the_span_of_a_selection_ends_with_its_last_element() {
    let span = |axes| plan(&[40, 6], CONTIGUOUS, axes).span() / ELEMENT;
    assert_eq!(span(vec![Axis::range(3, 1), Axis::range(2, 1)]), 1);
    assert_eq!(
        span(vec![Axis::list(&[9, 2]).unwrap(), Axis::range(1, 2)]),
        7 * 6 + 2
    );
}
