//! The sizes that decide whether the calling thread carries out a transfer by itself, with workers, or
//! leaves it to them. Decision 24 in `docs/decisions` has the measurement behind each;
//! `python/penstock/hdf5/small.py` has the sizes that are Python's.

/// The most bytes of host memory that one system call moves wherever they are; a longer one reads only
/// what the page cache has. Several workers read or write more of a medium at the same time.
pub(crate) const MOST_UNSEEN: u64 = 512 << 10;
/// The most bytes that the calling thread reads wherever they are. They fit into the smallest slot of
/// the ring.
pub const MOST_AT_ONCE: u64 = 1 << 20;
/// The most bytes that the calling thread reads if all of them are cached and the options leave
/// threads and blocks to the engine: waking workers takes longer than they save.
pub const MOST_CACHED_AT_ONCE: u64 = 2 << 20;
/// The most bytes that HDF5 itself reads into host memory in less time than a transfer takes to plan; also into
/// that of a GPU, to which they are then copied.
pub const LEAST_TRANSFER: u64 = 128 << 10;
/// The same for whole rows without filters or conversion, which HDF5 copies.
pub const LEAST_TRANSFER_OF_ROWS: u64 = 8 << 20;
/// The most chunks that one thread reads sooner than several.
pub const MOST_CHUNKS: usize = 16;
/// The most chunks without filters that it reads sooner out of the page cache, if it reads at most
/// [`MOST_CACHED_AT_ONCE`] bytes of them.
pub const MOST_READS: usize = 64;
/// The most rows that one thread reads from the page cache sooner than several.
pub const MOST_ROWS: u64 = 1024;
/// Bytes between rows that take as long to read as the call for the next row.
pub const ROW_CALL: u64 = 4 << 10;
/// The most bytes of chunks without filters, or blocks, of which one thread reads parts sooner than
/// several: each chunk may have as many bytes as the thread reads wherever they are.
pub const MOST_PLAIN: u64 = MOST_CHUNKS as u64 * MOST_AT_ONCE;
/// The most bytes of several chunks that one thread decodes sooner than several.
pub const MOST_DECODED: u64 = 256 << 10;
/// The most bytes of a request in which a thread that waits for it takes part, until its wait ends: for
/// more bytes, it makes no difference.
pub const MOST_OF_WAITER: u64 = 64 << 20;
/// The most decoded bytes that such a request goes through.
pub const MOST_WORK_OF_WAITER: u64 = 128 << 20;
/// Bytes of an average row from which the rows of several processes are written through mappings of
/// the file, which decision 23 measures.
pub const MAPPED_ROW: u64 = 512;
