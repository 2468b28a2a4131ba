//! Where the chunks of a dataset lie in the file.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::slice;

use penstock_engine::error::{Error, Kind, Result};
use penstock_sys::hdf5::{H5P_DEFAULT, H5S_MAX_RANK, HADDR_UNDEF, haddr_t, hid_t, hsize_t};

use crate::dataset::swizzle::Swizzle;
use crate::dataset::{DatasetInfo, FileInfo, Layout};
use crate::library::Session;

/// A dataset cut into chunks. Chunks are numbered in C order of their coordinates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkGrid {
    shape: Vec<u64>,
    chunk: Vec<u64>,
    counts: Vec<u64>,
    total: u64,
    elements: u64,
}

impl ChunkGrid {
    /// An error if ranks differ, a chunk is empty, or a number is too large to count with.
    pub fn new(shape: &[u64], chunk: &[u64]) -> Result<ChunkGrid> {
        let nonsense = |what: &str| {
            Error::new(
                Kind::Io,
                format!("the dataset of shape {shape:?} has chunks of shape {chunk:?}: {what}"),
            )
        };
        if shape.len() != chunk.len() || shape.len() > H5S_MAX_RANK {
            return Err(nonsense("the ranks do not fit"));
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
        let total = match counts.contains(&0) {
            true => 0,
            false => product(&counts).ok_or_else(|| nonsense("they are too many to count"))?,
        };
        let elements = product(chunk).ok_or_else(|| nonsense("they are too large"))?;
        // Also the end of the last chunk must be a number.
        let fits = |(s, c): (&u64, &u64)| {
            s.checked_add(*c)
                .is_some_and(|end| i64::try_from(end).is_ok())
        };
        if !shape.iter().zip(chunk).all(fits) {
            return Err(nonsense("they reach too far"));
        }
        Ok(ChunkGrid {
            shape: shape.to_vec(),
            chunk: chunk.to_vec(),
            counts,
            total,
            elements,
        })
    }

    pub fn shape(&self) -> &[u64] {
        &self.shape
    }
    /// Shape of a chunk in elements.
    pub fn chunk(&self) -> &[u64] {
        &self.chunk
    }
    /// Number of chunks along each dimension.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }
    /// Number of chunks that the dataset would have if all were allocated.
    pub fn total(&self) -> u64 {
        self.total
    }
    /// Elements of a chunk, those outside the dataset included.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// The number of the chunk at `coordinates`, which are inside the grid.
    pub fn number(&self, coordinates: &[u64]) -> u64 {
        coordinates
            .iter()
            .zip(&self.counts)
            .fold(0, |all, (at, count)| all * count + at)
    }

    /// Coordinates, counted in chunks, of the chunk with this number.
    pub fn coordinates(&self, number: u64) -> Vec<u64> {
        let mut left = number;
        let mut coordinates = vec![0; self.counts.len()];
        for (at, count) in coordinates.iter_mut().zip(&self.counts).rev() {
            *at = left % (*count).max(1);
            left /= (*count).max(1);
        }
        coordinates
    }

    /// Whether the chunk sticks out of the dataset.
    pub fn is_partial(&self, number: u64) -> bool {
        let sizes = self.shape.iter().zip(&self.chunk);
        self.coordinates(number)
            .iter()
            .zip(sizes)
            .any(|(at, (s, c))| (at + 1) * c > *s)
    }
}

/// One allocated chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredChunk {
    /// Offset in the file, user block included.
    pub address: u64,
    /// Bytes in the file.
    pub size: u64,
    /// Bit `i` is set if filter `i` was left out.
    pub mask: u32,
}

/// All allocated chunks of a dataset, sorted by number: 28 bytes a chunk.
#[derive(Clone, Debug)]
pub struct ChunkTable {
    grid: ChunkGrid,
    numbers: Vec<u64>,
    addresses: Vec<u64>,
    sizes: Vec<u64>,
    masks: Vec<u32>,
    /// Numbers of chunks that the file lists more than once. Nobody can say which entry is right.
    repeated: Vec<u64>,
    end: u64,
    file_size: u64,
}

impl ChunkTable {
    /// Reads the whole index. HDF5 first writes chunks that it holds changed in its cache.
    ///
    /// The size of the file bounds what a chunk may claim, and so what a forged index can make
    /// this allocate.
    pub fn read(session: &Session<'_>, dataset: hid_t, info: &DatasetInfo) -> Result<ChunkTable> {
        let Layout::Chunked { chunk, .. } = &info.layout else {
            return Err(Error::invalid("only a chunked dataset has a chunk table"));
        };
        let grid = ChunkGrid::new(&info.shape, chunk)?;
        let chunk_size = grid.elements().saturating_mul(info.element.size() as u64);
        let mut walk = Walk {
            swizzle: Swizzle::suspected(session, dataset, info)?,
            builder: TableBuilder::new(grid, info.file.size),
            file: &info.file,
            // The implicit index has no entries, but its chunks are all there.
            entry: chunk_size.clamp(1, 8),
            count: 0,
            failed: None,
        };
        let data: *mut c_void = ptr::from_mut(&mut walk).cast();
        // SAFETY: `visit` is given the walk that `data` points to, which outlives the call.
        let status = unsafe { (session.hdf5.H5Dchunk_iter)(dataset, H5P_DEFAULT, visit, data) };
        if let Some(error) = walk.failed {
            return Err(error);
        }
        session.check(status, "read the chunk index")?;
        // Chunks of a writer in another process are in the file before they are in the index.
        walk.builder.table.file_size = info.file.size_now();
        if let Some(swizzle) = walk.swizzle {
            swizzle.resolve(session, dataset, &mut walk.builder)?;
        }
        Ok(walk.builder.finish())
    }

    pub fn grid(&self) -> &ChunkGrid {
        &self.grid
    }
    /// Number of allocated chunks.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Behind the last byte of the file that belongs to a chunk.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The stored chunk with this number; `None` if it is not allocated. An entry that cannot be
    /// true is an error here, not when the table is read, so that it spoils no other chunk.
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

/// Makes a table from entries in any order.
#[derive(Debug)]
pub struct TableBuilder {
    table: ChunkTable,
    is_sorted: bool,
}

impl TableBuilder {
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

    pub(crate) fn file_size(&self) -> u64 {
        self.table.file_size
    }

    /// Adds the chunk whose first element is at `first`. Chunks without an address and chunks
    /// outside the dataset, which a writer may be about to extend, are passed over.
    pub fn add(&mut self, first: &[u64], stored: StoredChunk) -> Result<()> {
        let grid = &self.table.grid;
        if first.len() != grid.shape.len() {
            return Err(Error::new(
                Kind::Io,
                format!(
                    "the chunk at element {first:?} is in a dataset of rank {}",
                    grid.shape.len()
                ),
            ));
        }
        // Where there are no elements, no chunk is inside, and the chunks of the other dimensions may
        // be too many to count.
        if stored.address == HADDR_UNDEF || grid.total == 0 {
            return Ok(());
        }
        let mut number = 0;
        for ((at, chunk), count) in first.iter().zip(&grid.chunk).zip(&grid.counts) {
            let coordinate = at / chunk;
            if at % chunk != 0 {
                return Err(Error::new(
                    Kind::Io,
                    format!(
                        "a chunk starts at element {first:?}, inside a chunk of shape {:?}",
                        grid.chunk
                    ),
                ));
            }
            if coordinate >= *count {
                return Ok(());
            }
            // Inside the grid no number exceeds the total, which was counted.
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

struct Walk<'a> {
    builder: TableBuilder,
    file: &'a FileInfo,
    /// Takes the entries instead of the builder where their coordinates are in doubt.
    swizzle: Option<Swizzle>,
    /// Bytes of the file that an entry of the index takes at least.
    entry: u64,
    count: u64,
    failed: Option<Error>,
}

impl Walk<'_> {
    fn add(&mut self, first: &[u64], stored: StoredChunk) -> Result<()> {
        if self.count >= self.most() {
            // The file may have grown since it was looked at.
            self.builder.table.file_size = self.file.size_now();
        }
        if self.count >= self.most() {
            return Err(Error::new(
                Kind::Io,
                format!(
                    "the chunk index lists more than {} chunks, for which the file of {} bytes has no room",
                    self.most(),
                    self.builder.table.file_size
                ),
            ));
        }
        self.count += 1;
        match &mut self.swizzle {
            Some(swizzle) => swizzle.add(first, stored),
            None => self.builder.add(first, stored),
        }
    }

    /// Chunks that the index of such a file can list.
    fn most(&self) -> u64 {
        self.builder.table.file_size / self.entry
    }
}

const CONTINUE: c_int = 0;
const STOP: c_int = 1;

unsafe extern "C" fn visit(
    offset: *const hsize_t,
    filter_mask: c_uint,
    addr: haddr_t,
    size: hsize_t,
    op_data: *mut c_void,
) -> c_int {
    // SAFETY: `read` passes its walk, which nothing else uses during the iteration.
    let walk = unsafe { &mut *op_data.cast::<Walk<'_>>() };
    let rank = walk.builder.table.grid.shape.len();
    // SAFETY: HDF5 gives as many offsets as the dataset has dimensions, and one more.
    let first = unsafe { slice::from_raw_parts(offset, rank) };
    let stored = StoredChunk {
        address: addr,
        size,
        mask: filter_mask,
    };
    match walk.add(first, stored) {
        Ok(()) => CONTINUE,
        Err(error) => {
            walk.failed = Some(error);
            STOP
        }
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
        builder.add(&[0, 0], stored(HADDR_UNDEF, 0)).unwrap();
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
        for number in 0..6 {
            assert_eq!(grid.number(&grid.coordinates(number)), number);
        }
    }
}
