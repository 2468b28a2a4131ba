//! Runs of elements, regrouped by chunk.
//!
//! A run is contiguous in the C order of the array, so it crosses chunks, while a read needs all
//! pieces of one chunk at a time. The iterator merges the runs like a sweep line:
//!
//! 1. Runs are sorted by their first element, and cut at the ends of rows (the last dimension).
//! 2. All rows that start in the layer of the next chunk (the chunks with the same first
//!    coordinate) enter a heap, ordered by the chunk that each row reaches next.
//! 3. The smallest chunk is taken from the heap with all its rows. The rest of each row goes back
//!    into the heap for the next chunk.
//!
//! The invariant: every row that can touch the smallest chunk is in the heap, since rows of later
//! layers start in later chunks. Memory holds the rows of one layer, not all pieces, and each step
//! costs a logarithm of their number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use penstock_engine::error::Result;

use crate::boxes::Ranges;
use crate::chunks::ChunkGrid;
use crate::reserve::{lack, make_room};
use crate::selection::Run;

/// Iterates over the touched chunks in order.
pub(crate) struct RunsByChunk {
    grid: ChunkGrid,
    /// Sorted by first element.
    runs: Vec<Run>,
    next: usize,
    /// The remainders of runs whose first rows were cut off, sorted by first element. There is at
    /// most one unless runs overlap.
    tails: BinaryHeap<Reverse<Run>>,
    heap: BinaryHeap<Reverse<Row>>,
}

/// The remainder of a row. The order is that of the fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    chunk: u64,
    /// Offset of the first remaining element in the chunk, in elements.
    inside: u64,
    position: u64,
    length: u64,
    /// Index of the first remaining element along the last dimension.
    column: u64,
}

impl RunsByChunk {
    /// The runs must lie inside the grid's shape, whose elements must be countable.
    pub(super) fn new(grid: ChunkGrid, given: &[Run]) -> Result<Self> {
        let mut runs: Vec<Run> = Vec::new();
        make_room(&mut runs, given.len())?;
        runs.extend(given.iter().filter(|run| run.length > 0));
        runs.sort_by_key(|run| run.start);
        Ok(RunsByChunk {
            grid,
            runs,
            next: 0,
            tails: BinaryHeap::new(),
            heap: BinaryHeap::new(),
        })
    }

    /// Returns the next run, and whether it is the remainder of one.
    fn first(&self) -> Option<(Run, bool)> {
        let run = self.runs.get(self.next);
        match (self.tails.peek(), run) {
            (Some(Reverse(tail)), Some(run)) if run.start < tail.start => Some((*run, false)),
            (Some(Reverse(tail)), _) => Some((*tail, true)),
            (None, run) => run.map(|run| (*run, false)),
        }
    }

    /// Returns the part of a run that lies in its first row.
    fn row(&self, run: Run) -> Option<Row> {
        let start = run.start;
        let grid = &self.grid;
        let mut left = start;
        let (mut chunk, mut inside) = (0, 0);
        let (mut chunks, mut elements) = (1, 1);
        for ((size, side), count) in grid
            .shape()
            .iter()
            .zip(grid.chunk())
            .zip(grid.counts())
            .rev()
        {
            let index = left % size;
            left /= size;
            chunk += index / side * chunks;
            inside += index % side * elements;
            chunks *= count;
            elements *= side;
        }
        let width = grid.shape().last()?;
        let column = start % width;
        Some(Row {
            chunk,
            inside,
            position: run.position,
            length: run.length.min(width - column),
            column,
        })
    }

    /// Moves all rows that start in the layer of the next chunk into the heap.
    fn admit(&mut self) -> Result<()> {
        // A grid with elements has no side of 0, and the number of its chunks was checked.
        let layer_chunks = match self.first() {
            Some(_) => self.grid.counts()[1..].iter().product::<u64>(),
            None => return Ok(()),
        };
        while let Some((run, is_tail)) = self.first()
            && let Some(row) = self.row(run)
        {
            if let Some(Reverse(first)) = self.heap.peek()
                && row.chunk / layer_chunks > first.chunk / layer_chunks
            {
                return Ok(());
            }
            push_to_heap(&mut self.heap, row)?;
            if is_tail {
                self.tails.pop();
            } else {
                self.next += 1;
            }
            if row.length < run.length {
                let tail = Run {
                    start: run.start + row.length,
                    position: run.position + row.length,
                    length: run.length - row.length,
                };
                push_to_heap(&mut self.tails, tail)?;
            }
        }
        Ok(())
    }

    /// Returns the next touched chunk with its pieces.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Vec<Ranges>)>> {
        self.admit()?;
        let (Some(Reverse(first)), Some(side)) = (self.heap.peek(), self.grid.chunk().last())
        else {
            return Ok(None);
        };
        let (number, side) = (first.chunk, *side);
        let mut pieces: Vec<Ranges> = Vec::new();
        while let Some(Reverse(row)) = self.heap.peek().copied()
            && row.chunk == number
        {
            self.heap.pop();
            let length = row.length.min(side - row.column % side);
            // Rows of a chunk that is as wide as the array are adjacent.
            Ranges::one(row.inside, row.position, length).push_to(&mut pieces)?;
            if length < row.length {
                // Replaces the entry that was popped.
                self.heap.push(Reverse(Row {
                    chunk: row.chunk + 1,
                    inside: row.inside - row.column % side,
                    position: row.position + length,
                    length: row.length - length,
                    column: row.column + length,
                }));
            }
        }
        Ok(Some((number, pieces)))
    }
}

/// Returns an upper bound of the number of chunks that the runs touch. It is the sum of those of
/// each run: exact for a run within a row, and for chunks of whole rows.
pub(super) fn most_touched(grid: &ChunkGrid, runs: &[Run]) -> u64 {
    runs.iter()
        .fold(0, |all: u64, run| all.saturating_add(touched_by(grid, run)))
        .min(grid.total())
}

/// Returns an upper bound for one run: along the first dimension in which its ends differ, the
/// chunks between them, times all chunks along the dimensions after it.
fn touched_by(grid: &ChunkGrid, run: &Run) -> u64 {
    if run.length == 0 {
        return 0;
    }
    let (mut first, mut last) = (run.start, run.start.saturating_add(run.length - 1));
    let mut chunks: u64 = 1;
    let dimensions = grid.shape().iter().zip(grid.chunk()).zip(grid.counts());
    for ((size, side), count) in dimensions.rev() {
        let (low, high) = (first % size, last % size);
        (first, last) = (first / size, last / size);
        if first == last {
            chunks = chunks.saturating_mul(high / side - low / side + 1);
            break;
        }
        chunks = chunks.saturating_mul(*count);
    }
    chunks.min(run.length)
}

fn push_to_heap<T: Ord>(heap: &mut BinaryHeap<Reverse<T>>, item: T) -> Result<()> {
    heap.try_reserve(1)
        .map_err(|error| lack(heap.len(), &error))?;
    heap.push(Reverse(item));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn run(start: u64, position: u64, length: u64) -> Run {
        Run {
            start,
            position,
            length,
        }
    }

    /// Returns each chunk with the number of its pieces.
    fn pieces(grid: ChunkGrid, runs: &[Run]) -> Vec<(u64, usize)> {
        let mut chunks = RunsByChunk::new(grid, runs).unwrap();
        std::iter::from_fn(|| chunks.next().unwrap())
            .map(|(chunk, pieces)| (chunk, pieces.len()))
            .collect()
    }

    #[test]
    fn a_run_from_the_chunk_before_joins_those_that_start_in_a_chunk() {
        let grid = ChunkGrid::new(&[6], &[3]).unwrap();
        assert_eq!(
            pieces(grid, &[run(4, 9, 1), run(1, 0, 4)]),
            [(0, 1), (1, 2)]
        );
    }

    #[test]
    fn runs_of_whole_chunks_touch_their_number_of_chunks() {
        let grid = ChunkGrid::new(&[9, 2, 2], &[2, 2, 2]).unwrap();
        let runs = [run(24, 0, 8), run(0, 8, 8), run(33, 16, 3), run(9, 0, 0)];
        assert_eq!(most_touched(&grid, &runs), 3);
        assert_eq!(most_touched(&grid, &[run(7, 0, 10)]), 3);
    }

    proptest! {
        #[test]
        fn runs_touch_at_most_the_bound(
            (shape, chunk) in prop::collection::vec((1..9u64, 1..9u64), 1..4)
                .prop_map(|sides| sides.into_iter().unzip::<u64, u64, Vec<_>, Vec<_>>()),
            ends in prop::collection::vec((0..600u64, 0..600u64), 1..4),
        ) {
            let total: u64 = shape.iter().product();
            let run = |(a, b): (u64, u64)| {
                let (a, b) = (a % total, b % total);
                run(a.min(b), 0, a.abs_diff(b) + 1)
            };
            let runs: Vec<Run> = ends.into_iter().map(run).collect();
            let grid = ChunkGrid::new(&shape, &chunk).unwrap();
            let most = most_touched(&grid, &runs);
            prop_assert!(pieces(grid, &runs).len() as u64 <= most);
        }
    }

    #[test]
    fn a_run_within_a_row_touches_the_chunks_between_its_ends() {
        let grid = ChunkGrid::new(&[100, 100], &[10, 10]).unwrap();
        assert_eq!(most_touched(&grid, &[run(300, 0, 100)]), 10);
        assert_eq!(most_touched(&grid, &[run(305, 0, 10)]), 2);
        assert_eq!(most_touched(&grid, &[run(399, 0, 2)]), 2);
    }

    #[test]
    fn a_chunk_comes_once_also_where_runs_overlap() {
        let grid = ChunkGrid::new(&[3, 2], &[1, 2]).unwrap();
        let found = pieces(grid, &[run(1, 5, 5), run(1, 2, 2)]);
        assert_eq!(found, [(0, 2), (1, 2), (2, 1)]);
    }
}
