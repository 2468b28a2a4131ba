//! Where the chunks of an array lie in the file.

use penstock_engine::error::{Error, Kind, Result};

use super::ChunkGrid;

/// Address of a chunk that an index lists without storage.
pub const NO_STORAGE: u64 = u64::MAX;

/// One allocated chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredChunk {
    /// File offset, counted from the start of the file (user block included).
    pub address: u64,
    /// Number of stored bytes.
    pub size: u64,
    /// Filter mask: bit `i` is set if filter `i` was skipped.
    pub mask: u32,
}

/// All allocated chunks of an array, sorted by number; 28 bytes a chunk.
#[derive(Clone, Debug)]
pub struct ChunkTable {
    grid: ChunkGrid,
    numbers: Vec<u64>,
    addresses: Vec<u64>,
    sizes: Vec<u64>,
    masks: Vec<u32>,
    /// Numbers of chunks that the file lists more than once: which entry is right cannot be known.
    repeated: Vec<u64>,
    end: u64,
    file_size: u64,
}

impl ChunkTable {
    /// Returns the grid whose chunks are listed.
    pub fn grid(&self) -> &ChunkGrid {
        &self.grid
    }
    /// Returns the number of allocated chunks.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }
    /// Returns whether no chunk is allocated.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns the end offset of the last byte of the file that belongs to a chunk.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the stored chunk with this number; `None` if it is not allocated. An impossible
    /// entry is an error here and not when the table is read, so that it affects no other chunk.
    pub fn find(&self, number: u64) -> Result<Option<StoredChunk>> {
        let position = if self.numbers.len() as u64 == self.grid.total() {
            usize::try_from(number).ok().filter(|at| *at < self.len())
        } else {
            self.numbers.binary_search(&number).ok()
        };
        let Some(at) = position else {
            return Ok(None);
        };
        let stored = StoredChunk {
            address: self.addresses[at],
            size: self.sizes[at],
            mask: self.masks[at],
        };
        let what = if self.repeated.binary_search(&number).is_ok() {
            "is listed more than once".to_owned()
        } else if stored.size == 0 {
            "is stored in 0 bytes".to_owned()
        } else if stored
            .address
            .checked_add(stored.size)
            .is_none_or(|end| end > self.file_size)
        {
            format!(
                "reaches past the end of the file, which has {} bytes",
                self.file_size
            )
        } else {
            return Ok(Some(stored));
        };
        Err(Error::new(
            Kind::Io,
            format!(
                "the chunk at {:?}, {} bytes at offset {}, {what}",
                self.grid.coordinates(number),
                stored.size,
                stored.address
            ),
        )
        .remedy("the chunk index of the file is damaged: restore the file from a copy"))
    }
}

/// Builds a table from entries in any order.
#[derive(Debug)]
pub struct TableBuilder {
    table: ChunkTable,
    is_sorted: bool,
}

impl TableBuilder {
    /// Returns a builder without chunks, for a file of `file_size` bytes.
    pub fn new(grid: ChunkGrid, file_size: u64) -> Self {
        TableBuilder {
            table: ChunkTable {
                grid,
                numbers: Vec::new(),
                addresses: Vec::new(),
                sizes: Vec::new(),
                masks: Vec::new(),
                repeated: Vec::new(),
                end: 0,
                file_size,
            },
            is_sorted: true,
        }
    }

    /// Returns the length of the file, past which no chunk can lie.
    pub fn file_size(&self) -> u64 {
        self.table.file_size
    }

    /// Updates the length of a file that has grown since the builder was made.
    pub fn set_file_size(&mut self, size: u64) {
        self.table.file_size = size;
    }

    /// Returns the grid whose chunks are listed.
    pub fn grid(&self) -> &ChunkGrid {
        &self.table.grid
    }

    /// Adds the chunk whose first element is at `first`. Ignores chunks without an address, and
    /// chunks outside the array, which a writer may be about to extend.
    pub fn add(&mut self, first: &[u64], stored: StoredChunk) -> Result<()> {
        let grid = &self.table.grid;
        if first.len() != grid.shape().len() {
            return Err(Error::new(
                Kind::Io,
                format!(
                    "the chunk at element {first:?} is in a dataset of rank {}",
                    grid.shape().len()
                ),
            ));
        }
        // An array without elements contains no chunk, and the number of chunks along its other
        // dimensions may overflow.
        if stored.address == NO_STORAGE || grid.total() == 0 {
            return Ok(());
        }
        let mut number = 0;
        for ((at, chunk), count) in first.iter().zip(grid.chunk()).zip(grid.counts()) {
            let coordinate = at / chunk;
            if at % chunk != 0 {
                return Err(Error::new(
                    Kind::Io,
                    format!(
                        "a chunk starts at element {first:?}, inside a chunk of shape {:?}",
                        grid.chunk()
                    ),
                ));
            }
            if coordinate >= *count {
                return Ok(());
            }
            // Cannot overflow: no number in the grid exceeds the total, which was checked.
            number = number * count + coordinate;
        }
        let table = &mut self.table;
        if table.numbers.len() == table.numbers.capacity() {
            let more = table.numbers.len().max(64);
            let room = table
                .numbers
                .try_reserve(more)
                .and_then(|()| table.addresses.try_reserve(more))
                .and_then(|()| table.sizes.try_reserve(more))
                .and_then(|()| table.masks.try_reserve(more));
            if let Err(error) = room {
                return Err(Error::new(
                    Kind::Memory,
                    format!(
                        "no memory for the table of more than {} chunks: {error}",
                        more
                    ),
                ));
            }
        }
        if table.numbers.last().is_some_and(|last| *last >= number) {
            self.is_sorted = false;
        }
        table.end = table.end.max(stored.address.saturating_add(stored.size));
        table.numbers.push(number);
        table.addresses.push(stored.address);
        table.sizes.push(stored.size);
        table.masks.push(stored.mask);
        Ok(())
    }

    /// Sorts the chunks and records those that were added more than once.
    pub fn finish(self) -> ChunkTable {
        let mut table = self.table;
        if self.is_sorted {
            return table;
        }
        let mut order: Vec<usize> = (0..table.len()).collect();
        order.sort_by_key(|at| table.numbers[*at]);
        order.dedup_by(|next, before| {
            let number = table.numbers[*next];
            let is_same = number == table.numbers[*before];
            if is_same && table.repeated.last() != Some(&number) {
                table.repeated.push(number);
            }
            is_same
        });
        table.numbers = order.iter().map(|at| table.numbers[*at]).collect();
        table.addresses = order.iter().map(|at| table.addresses[*at]).collect();
        table.sizes = order.iter().map(|at| table.sizes[*at]).collect();
        table.masks = order.iter().map(|at| table.masks[*at]).collect();
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(address: u64, size: u64) -> StoredChunk {
        StoredChunk {
            address,
            size,
            mask: 0,
        }
    }

    fn builder() -> TableBuilder {
        TableBuilder::new(ChunkGrid::new(&[5, 4], &[2, 3]).unwrap(), 1000)
    }

    #[test]
    fn chunks_are_found_whatever_the_order_of_the_index() {
        let mut builder = builder();
        for (first, address) in [([4, 3], 60), ([0, 0], 10), ([2, 3], 40)] {
            builder.add(&first, stored(address, 5)).unwrap();
        }
        let table = builder.finish();
        let addresses: Vec<Option<u64>> = (0..6)
            .map(|n| table.find(n).unwrap().map(|c| c.address))
            .collect();
        let expected = [Some(10), None, None, Some(40), None, Some(60)];
        assert_eq!(addresses, expected);
    }

    #[test]
    fn a_repeated_chunk_is_an_error_that_spoils_no_other() {
        let mut builder = builder();
        for (first, address) in [([0, 3], 10), ([0, 0], 20), ([0, 3], 30), ([0, 3], 40)] {
            builder.add(&first, stored(address, 5)).unwrap();
        }
        let table = builder.finish();
        assert_eq!(table.find(0).unwrap(), Some(stored(20, 5)));
        let text = table.find(1).unwrap_err().to_string();
        assert!(text.contains("the chunk at [0, 1]"), "{text}");
        assert!(text.contains("listed more than once"), "{text}");
    }

    #[test]
    fn a_chunk_past_the_end_of_the_file_is_named_with_its_place() {
        for (address, size) in [(999, 2), (u64::MAX - 1, 1), (0, u64::MAX), (2000, 1)] {
            let mut builder = builder();
            builder.add(&[2, 0], stored(address, size)).unwrap();
            let text = builder.finish().find(2).unwrap_err().to_string();
            assert!(text.contains("the chunk at [1, 0]"), "{text}");
            assert!(text.contains(&format!("offset {address}")), "{text}");
        }
    }

    #[test]
    fn chunks_outside_the_dataset_and_without_storage_are_passed_over() {
        let mut builder = builder();
        builder.add(&[6, 0], stored(10, 5)).unwrap();
        builder.add(&[0, u64::MAX / 3 * 3], stored(10, 5)).unwrap();
        builder.add(&[0, 0], stored(NO_STORAGE, 0)).unwrap();
        assert!(builder.finish().is_empty());
    }

    #[test]
    fn a_dataset_without_elements_has_no_chunk_however_large_its_other_dimensions_are() {
        let grid = ChunkGrid::new(&[1 << 40, 1 << 40, 0], &[1, 1, 1]).unwrap();
        let mut builder = TableBuilder::new(grid, 1000);
        builder.add(&[1 << 39, 1 << 39, 0], stored(10, 5)).unwrap();
        assert!(builder.finish().is_empty());
    }

    #[test]
    fn a_chunk_between_the_lines_of_the_grid_is_an_error() {
        let error = builder().add(&[1, 0], stored(10, 5)).unwrap_err();
        assert!(error.to_string().contains("[1, 0]"), "{error}");
    }
}
