//! Runs of elements, regrouped by the chunks that they lie in.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::chunks::ChunkGrid;
use crate::placement::Segment;
use crate::selection::Run;

/// Goes through the chunks that are touched, in order.
///
/// Runs are cut at the ends of rows (the last dimension), and the rows that meet the present layer
/// of chunks (those with the same first coordinate) wait in a heap, sorted by the chunk that each
/// comes to next. So the memory in use is that of a layer's rows, not that of all pieces.
pub(crate) struct Sweep {
    grid: ChunkGrid,
    /// By source.
    runs: Vec<Run>,
    next: usize,
    /// The part of `runs[next]` that has been cut off already.
    cut: u64,
    heap: BinaryHeap<Reverse<Row>>,
}

/// What is left of a piece of a row; the order is that of the fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    chunk: u64,
    /// First element left, counted in the chunk.
    inside: u64,
    target: u64,
    length: u64,
    /// Index of the first element left along the last dimension.
    column: u64,
}

impl Sweep {
    /// The runs lie inside the grid's shape, whose elements can be counted.
    pub fn new(grid: ChunkGrid, runs: &[Run]) -> Self {
        let mut runs = runs.to_vec();
        runs.retain(|run| run.length > 0);
        runs.sort_by_key(|run| run.source);
        Sweep {
            grid,
            runs,
            next: 0,
            cut: 0,
            heap: BinaryHeap::new(),
        }
    }

    /// The next piece inside one row, without taking it.
    fn row(&self) -> Option<Row> {
        let run = self.runs.get(self.next)?;
        let source = run.source + self.cut;
        let grid = &self.grid;
        let mut left = source;
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
        let column = source % width;
        Some(Row {
            chunk,
            inside,
            target: run.target + self.cut,
            length: (run.length - self.cut).min(width - column),
            column,
        })
    }

    /// Moves all rows into the heap that start in the layer of the chunk that comes next.
    fn admit(&mut self) {
        if self.next == self.runs.len() {
            return;
        }
        // A grid with an element has no side of 0, and all its chunks were counted.
        let layer_chunks = self.grid.counts()[1..].iter().product::<u64>();
        while let Some(row) = self.row() {
            if let Some(Reverse(first)) = self.heap.peek()
                && row.chunk / layer_chunks > first.chunk / layer_chunks
            {
                return;
            }
            self.heap.push(Reverse(row));
            self.cut += row.length;
            if self.cut == self.runs[self.next].length {
                self.next += 1;
                self.cut = 0;
            }
        }
    }

    /// The next touched chunk and the pieces of it.
    pub fn next(&mut self) -> Option<(u64, Vec<Segment>)> {
        self.admit();
        let number = self.heap.peek()?.0.chunk;
        let side = *self.grid.chunk().last()?;
        let mut pieces: Vec<Segment> = Vec::new();
        while let Some(Reverse(row)) = self.heap.peek().copied()
            && row.chunk == number
        {
            self.heap.pop();
            let length = row.length.min(side - row.column % side);
            match pieces.last_mut() {
                // Rows of a chunk as wide as the dataset go on without a gap.
                Some(last)
                    if last.source_step == 1
                        && last.target_step == 1
                        && last.source + last.count == row.inside
                        && last.target + last.count == row.target =>
                {
                    last.count += length;
                }
                _ => Segment::range(row.inside, row.target, length).push_to(&mut pieces),
            }
            if length < row.length {
                self.heap.push(Reverse(Row {
                    chunk: row.chunk + 1,
                    inside: row.inside - row.column % side,
                    target: row.target + length,
                    length: row.length - length,
                    column: row.column + length,
                }));
            }
        }
        Some((number, pieces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_from_the_chunk_before_joins_those_that_start_in_a_chunk() {
        let grid = ChunkGrid::new(&[6], &[3]).unwrap();
        let run = |source, target, length| Run {
            source,
            target,
            length,
        };
        let mut sweep = Sweep::new(grid, &[run(4, 9, 1), run(1, 0, 4)]);
        let chunks: Vec<(u64, usize)> = std::iter::from_fn(|| sweep.next())
            .map(|(chunk, pieces)| (chunk, pieces.len()))
            .collect();
        assert_eq!(chunks, [(0, 1), (1, 2)]);
    }
}
