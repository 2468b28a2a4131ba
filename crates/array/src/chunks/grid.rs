//! An array cut into chunks.

use penstock_engine::error::{Error, Kind, Result};

/// The largest number of dimensions of an array. File formats that this crate serves allow no more.
pub const MAX_RANK: usize = 32;

/// An array cut into chunks. Chunks are numbered in C order of their coordinates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkGrid {
    shape: Vec<u64>,
    chunk: Vec<u64>,
    counts: Vec<u64>,
    total: u64,
    elements: u64,
}

impl ChunkGrid {
    /// Creates a grid. Fails if the ranks differ, a chunk is empty, or a number overflows.
    pub fn new(shape: &[u64], chunk: &[u64]) -> Result<ChunkGrid> {
        let nonsense = |what: &str| {
            Error::new(
                Kind::Io,
                format!("the dataset of shape {shape:?} has chunks of shape {chunk:?}: {what}"),
            )
        };
        if shape.len() != chunk.len() || shape.len() > MAX_RANK {
            return Err(nonsense("the ranks do not match"));
        }
        if chunk.contains(&0) {
            return Err(nonsense("they are empty"));
        }
        let counts: Vec<u64> = shape
            .iter()
            .zip(chunk)
            .map(|(s, c)| s.div_ceil(*c))
            .collect();
        let product = |sizes: &[u64]| {
            sizes
                .iter()
                .try_fold(1u64, |all, n| all.checked_mul(*n))
                .filter(|n| i64::try_from(*n).is_ok())
        };
        let total = if counts.contains(&0) {
            0
        } else {
            product(&counts).ok_or_else(|| nonsense("their number overflows"))?
        };
        let elements = product(chunk).ok_or_else(|| nonsense("they are too large"))?;
        // The end of the last chunk must fit into an `i64`, too.
        let fits = |(s, c): (&u64, &u64)| {
            s.checked_add(*c)
                .is_some_and(|end| i64::try_from(end).is_ok())
        };
        if !shape.iter().zip(chunk).all(fits) {
            return Err(nonsense("they end past the largest possible index"));
        }
        Ok(ChunkGrid {
            shape: shape.to_vec(),
            chunk: chunk.to_vec(),
            counts,
            total,
            elements,
        })
    }

    /// Returns the shape of the array in elements.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }
    /// Returns the shape of a chunk in elements.
    pub fn chunk(&self) -> &[u64] {
        &self.chunk
    }
    /// Returns the number of chunks along each dimension.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }
    /// Returns the number of chunks that the array has if all are allocated.
    pub fn total(&self) -> u64 {
        self.total
    }
    /// Returns the number of elements of a chunk, those outside the array included.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Returns the number of the chunk at `coordinates`, which must be inside the grid.
    pub fn number(&self, coordinates: &[u64]) -> u64 {
        coordinates
            .iter()
            .zip(&self.counts)
            .fold(0, |all, (at, count)| all * count + at)
    }

    /// Returns the coordinates, in units of chunks, of the chunk with this number.
    pub fn coordinates(&self, number: u64) -> Vec<u64> {
        let mut left = number;
        let mut coordinates = vec![0; self.counts.len()];
        for (at, count) in coordinates.iter_mut().zip(&self.counts).rev() {
            *at = left % (*count).max(1);
            left /= (*count).max(1);
        }
        coordinates
    }

    /// Returns whether the chunk extends past the edge of the array.
    pub fn is_partial(&self, number: u64) -> bool {
        self.elements_inside(number) < self.elements
    }

    /// Returns the number of elements of a chunk that lie inside the array.
    pub fn elements_inside(&self, number: u64) -> u64 {
        let sizes = self.shape.iter().zip(&self.chunk);
        self.coordinates(number)
            .iter()
            .zip(sizes)
            .map(|(at, (side, chunk))| (*chunk).min(side - at * chunk))
            .product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_that_overflow_are_errors() {
        for (shape, chunk) in [
            (vec![u64::MAX], vec![1]),
            (vec![1 << 40, 1 << 40], vec![1, 1]),
            (vec![4, 4], vec![1 << 40, 1 << 40]),
            (vec![4], vec![0]),
            (vec![4], vec![2, 2]),
            (vec![1; 33], vec![1; 33]),
        ] {
            assert!(
                ChunkGrid::new(&shape, &chunk).is_err(),
                "{shape:?} {chunk:?}"
            );
        }
    }

    #[test]
    fn only_chunks_at_the_far_edges_stick_out() {
        let grid = ChunkGrid::new(&[5, 4], &[2, 3]).unwrap();
        let partial: Vec<bool> = (0..6).map(|n| grid.is_partial(n)).collect();
        assert_eq!(partial, [false, true, false, true, true, true]);
        let inside: Vec<u64> = (0..6).map(|n| grid.elements_inside(n)).collect();
        assert_eq!(inside, [6, 2, 6, 2, 3, 1]);
        for number in 0..6 {
            assert_eq!(grid.number(&grid.coordinates(number)), number);
        }
    }
}
