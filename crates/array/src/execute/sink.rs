//! What a write needs of the format that it writes: done on the submitter's thread, in its steps.

use penstock_engine::error::Result;
use penstock_engine::report::Path;

/// One chunk as it is to be stored.
pub struct EncodedChunk<'a> {
    /// Index in the array of its first element.
    pub first: Vec<u64>,
    /// Bit `i` is set if filter `i` was left out.
    pub mask: u32,
    /// Its stored bytes.
    pub bytes: &'a [u8],
}

/// Where encoded chunks go.
pub trait ChunkSink: Send + Sync {
    /// Begins a step of the submitter's, which ends when what is returned is dropped.
    fn step(&self) -> Box<dyn ChunkStep + '_>;

    /// All chunks are written.
    fn finish(&self) -> Result<()>;
}

/// A step in which some chunks are written.
pub trait ChunkStep {
    /// Writes a chunk. They come in the order of the plan.
    fn write(&mut self, chunk: EncodedChunk<'_>) -> Result<()>;
}

/// What comes after blocks of contiguous data, which workers have written into the file themselves.
pub trait BlockSink: Send + Sync {
    /// All blocks are written.
    fn finish(&self) -> Result<()>;

    /// The last call, however the write has ended.
    fn end(&self);
}

/// Where the elements go that only the format's library can write.
pub trait DenseSink: Send + Sync {
    /// Writes all elements, which follow each other in `bytes`.
    fn write(&self, bytes: &[u8]) -> Result<()>;

    /// The last call, however the write has ended.
    fn end(&self);

    /// How reports call this way.
    fn path(&self) -> Path;
}

/// Where a write ends.
pub enum Sink {
    /// Chunks of a chunked array, encoded by workers.
    Chunks(Box<dyn ChunkSink>),
    /// Blocks of a contiguous array, written by workers.
    Blocks(Box<dyn BlockSink>),
    /// So many bytes of elements gathered in host memory.
    Dense(Box<dyn DenseSink>, u64),
}
