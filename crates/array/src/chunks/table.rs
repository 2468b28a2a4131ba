//! Where the chunks of an array lie in the file.

use std::collections::TryReserveError;
use std::result::Result as StdResult;

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

/// All allocated chunks of an array, sorted by number. The table takes at most 28 bytes a chunk, 8
/// if all chunks are allocated and of one size, and none if they also follow each other in the file
/// and [`ChunkTable::in_order`] made the table.
#[derive(Clone, Debug)]
pub struct ChunkTable {
    grid: ChunkGrid,
    /// The numbers of the chunks. Empty if they are consecutive from 0.
    numbers: Vec<u64>,
    addresses: Vec<u64>,
    /// The address of chunk 0, if all chunks follow each other in order of their numbers. Then
    /// there are no other addresses and no numbers, and one size.
    first: Option<u64>,
    /// The stored sizes: a single one if all are equal.
    sizes: Vec<u64>,
    /// The filter masks: a single one if all are equal.
    masks: Vec<u32>,
    /// The numbers of chunks that the file lists more than once, so that the correct entry is
    /// unknown.
    repeated: Vec<u64>,
    end: u64,
    file_size: u64,
}

/// The entries of a table, sorted by number. A list is shorter than the table if a rule determines
/// its items.
#[derive(Debug, PartialEq, Eq)]
pub struct Entries<'a> {
    /// The numbers of the chunks, in C order of their coordinates; empty if they are consecutive
    /// from 0.
    pub numbers: &'a [u64],
    /// File offsets.
    pub addresses: &'a [u64],
    /// The stored sizes in bytes: a single one if all are equal.
    pub sizes: &'a [u64],
    /// The filter masks: a single one if all are equal.
    pub masks: &'a [u32],
}

impl ChunkTable {
    /// Returns the table of chunks without filters that are all allocated, and follow each other in
    /// the file from `address` on, `size` bytes each.
    pub fn in_order(
        grid: ChunkGrid,
        address: u64,
        size: u64,
        file_size: u64,
    ) -> Result<ChunkTable> {
        let end = size
            .checked_mul(grid.total())
            .and_then(|bytes| bytes.checked_add(address));
        let Some(end) = end else {
            let what = format!("chunks from offset {address} end past the largest offset");
            return Err(Error::new(Kind::Io, what));
        };
        Ok(ChunkTable {
            first: Some(address),
            sizes: vec![size],
            masks: vec![0],
            end,
            ..TableBuilder::new(grid, file_size).table
        })
    }

    /// Returns all entries; `None` if the chunks follow each other in order (see
    /// [`first`](Self::first)).
    pub fn entries(&self) -> Option<Entries<'_>> {
        self.first.is_none().then_some(Entries {
            numbers: &self.numbers,
            addresses: &self.addresses,
            sizes: &self.sizes,
            masks: &self.masks,
        })
    }

    /// Returns the address of the first chunk, if the table was made by [`in_order`](Self::in_order).
    pub fn first(&self) -> Option<u64> {
        self.first
    }

    /// Returns the length of the file, past which no chunk can lie.
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// Returns the grid whose chunks are listed.
    pub fn grid(&self) -> &ChunkGrid {
        &self.grid
    }
    /// Returns the number of allocated chunks.
    pub fn len(&self) -> usize {
        match self.first {
            Some(_) => usize::try_from(self.grid.total()).unwrap_or(usize::MAX),
            None => self.addresses.len(),
        }
    }
    /// Returns whether no chunk is allocated.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many bytes of memory the table takes.
    pub fn bytes(&self) -> usize {
        let words = self.numbers.capacity() + self.addresses.capacity() + self.sizes.capacity();
        8 * (words + self.repeated.capacity()) + 4 * self.masks.capacity()
    }

    /// Frees the lists that a rule can replace.
    fn compact(&mut self) {
        let mut numbers = self.numbers.iter().zip(0..);
        if numbers.all(|(number, at)| *number == at) {
            self.numbers.clear();
        }
        self.numbers.shrink_to_fit();
        self.addresses.shrink_to_fit();
        self.sizes.shrink_to_fit();
        self.masks.shrink_to_fit();
    }

    /// Returns the end offset of the last byte of the file that belongs to a chunk.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the stored chunk with this number; `None` if it is not allocated. An impossible
    /// entry is an error here and not when the table is read, so that it affects no other chunk.
    pub fn find(&self, number: u64) -> Result<Option<StoredChunk>> {
        let Some(stored) = self.entry(number) else {
            return Ok(None);
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

    fn entry(&self, number: u64) -> Option<StoredChunk> {
        let at = if self.numbers.is_empty() {
            usize::try_from(number).ok().filter(|at| *at < self.len())
        } else {
            self.numbers.binary_search(&number).ok()
        }?;
        let size = of_chunk(&self.sizes, at);
        Some(StoredChunk {
            address: match self.first {
                // Cannot overflow: not even the end of the last chunk does.
                Some(first) => first + number * size,
                None => self.addresses[at],
            },
            size,
            mask: of_chunk(&self.masks, at),
        })
    }
}

/// Adds the value of a chunk to the values of the `before` chunks before it. As long as all values
/// are equal, the list has only the first.
fn push_unless_equal<T: Copy + PartialEq>(
    values: &mut Vec<T>,
    before: usize,
    value: T,
) -> StdResult<(), TryReserveError> {
    if let [one] = values[..] {
        if one == value {
            return Ok(());
        }
        for _ in 1..before {
            push(values, one)?;
        }
    }
    push(values, value)
}

/// Adds a value, if there is memory for it.
fn push<T>(values: &mut Vec<T>, value: T) -> StdResult<(), TryReserveError> {
    values.try_reserve(1)?;
    values.push(value);
    Ok(())
}

/// Returns the value of a chunk.
fn of_chunk<T: Copy>(values: &[T], at: usize) -> T {
    match values {
        [one] => *one,
        all => all[at],
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
                first: None,
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
        self.add_numbered(number, stored)
    }

    /// Adds the chunk of a number, in C order of coordinates. A number outside the grid is an error.
    pub fn add_numbered(&mut self, number: u64, stored: StoredChunk) -> Result<()> {
        let table = &mut self.table;
        let total = table.grid.total();
        if number >= total {
            let what = format!("there is no chunk {number}: the array has {total}");
            return Err(Error::new(Kind::Io, what));
        }
        let before = table.addresses.len();
        let is_next = table.numbers.is_empty() && number == before as u64;
        if !is_next && before > 0 {
            let last = table.numbers.last().copied().unwrap_or(before as u64 - 1);
            self.is_sorted &= last < number;
        }
        let out_of_memory = |error: TryReserveError| {
            let what = format!("no memory for the table of {before} chunks and more: {error}");
            Error::new(Kind::Memory, what)
        };
        push(&mut table.addresses, stored.address).map_err(out_of_memory)?;
        if !is_next {
            let implied = table.numbers.len() as u64..before as u64;
            for number in implied.chain([number]) {
                push(&mut table.numbers, number).map_err(out_of_memory)?;
            }
        }
        push_unless_equal(&mut table.sizes, before, stored.size).map_err(out_of_memory)?;
        push_unless_equal(&mut table.masks, before, stored.mask).map_err(out_of_memory)?;
        table.end = table.end.max(stored.address.saturating_add(stored.size));
        Ok(())
    }

    /// Sorts the chunks and records those that were added more than once.
    pub fn finish(self) -> ChunkTable {
        let mut table = self.table;
        if self.is_sorted {
            table.compact();
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
        if table.sizes.len() > 1 {
            table.sizes = order.iter().map(|at| table.sizes[*at]).collect();
        }
        if table.masks.len() > 1 {
            table.masks = order.iter().map(|at| table.masks[*at]).collect();
        }
        table.compact();
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
    fn chunks_that_follow_each_other_are_found_without_a_list() {
        let grid = ChunkGrid::new(&[5, 4], &[2, 3]).unwrap();
        let table = ChunkTable::in_order(grid.clone(), 100, 24, 1000).unwrap();
        assert_eq!((table.len(), table.end()), (6, 100 + 6 * 24));
        assert_eq!(table.find(0).unwrap(), Some(stored(100, 24)));
        assert_eq!(table.find(5).unwrap(), Some(stored(100 + 5 * 24, 24)));
        assert_eq!(table.find(6).unwrap(), None);
        assert_eq!((table.first(), table.entries()), (Some(100), None));
        assert!(table.bytes() < 64, "{} bytes", table.bytes());
        let cut_off = ChunkTable::in_order(grid.clone(), 100, 24, 200).unwrap();
        assert!(cut_off.find(5).is_err());
        assert!(ChunkTable::in_order(grid, u64::MAX - 5, 24, 1000).is_err());
    }

    #[test]
    fn an_array_without_elements_has_no_chunks_that_follow_each_other() {
        let grid = ChunkGrid::new(&[0, 4], &[2, 3]).unwrap();
        let table = ChunkTable::in_order(grid, 100, 24, 1000).unwrap();
        assert!(table.is_empty());
        assert_eq!(table.find(0).unwrap(), None);
    }

    #[test]
    fn a_number_outside_the_grid_is_refused() {
        assert!(builder().add_numbered(5, stored(10, 5)).is_ok());
        assert!(builder().add_numbered(6, stored(10, 5)).is_err());
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
    fn a_table_is_the_same_whatever_the_order_of_its_entries() {
        let grid = ChunkGrid::new(&[4], &[1]).unwrap();
        for code in 0..4u64.pow(4) {
            let order: Vec<u64> = (0..4).map(|digit| code / 4u64.pow(digit) % 4).collect();
            for length in 1..=4 {
                let given = &order[..length];
                let mut builder = TableBuilder::new(grid.clone(), 1000);
                for number in given {
                    let chunk = stored(number * 10 + 1, number / 2 + 1);
                    builder.add(&[*number], chunk).unwrap();
                }
                let table = builder.finish();
                for number in 0..4 {
                    let chunk = stored(number * 10 + 1, number / 2 + 1);
                    let count = given.iter().filter(|other| **other == number).count();
                    match count {
                        0 => assert_eq!(table.find(number).unwrap(), None, "{given:?}"),
                        1 => assert_eq!(table.find(number).unwrap(), Some(chunk), "{given:?}"),
                        _ => assert!(table.find(number).is_err(), "{given:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_table_of_all_chunks_of_one_size_takes_8_bytes_a_chunk() {
        let grid = ChunkGrid::new(&[1000], &[1]).unwrap();
        for (skipped, size, most) in [(None, 7, 8_100), (Some(3), 7, 16_100), (None, 8, 16_100)] {
            let mut builder = TableBuilder::new(grid.clone(), 1 << 20);
            let chunks = || (0..1000u64).filter(|number| Some(*number) != skipped);
            for number in chunks() {
                let size = if number == 500 { size } else { 7 };
                builder.add(&[number], stored(number * 8, size)).unwrap();
            }
            let table = builder.finish();
            assert!(table.bytes() < most, "{} bytes", table.bytes());
            assert_eq!(table.len(), chunks().count());
            for number in chunks() {
                let size = if number == 500 { size } else { 7 };
                assert_eq!(table.find(number).unwrap(), Some(stored(number * 8, size)));
            }
            for number in skipped.into_iter().chain([1000]) {
                assert_eq!(table.find(number).unwrap(), None);
            }
        }
    }

    #[test]
    fn a_repeated_chunk_is_an_error_that_affects_no_other_chunk() {
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
    fn chunks_outside_the_dataset_or_without_storage_are_ignored() {
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
    fn a_chunk_that_starts_inside_another_is_an_error() {
        let error = builder().add(&[1, 0], stored(10, 5)).unwrap_err();
        assert!(error.to_string().contains("[1, 0]"), "{error}");
    }
}
