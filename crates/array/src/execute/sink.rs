//! The operations that a write needs from its file format. They run on the submitter's thread, in
//! submitter steps.

use penstock_engine::error::Result;
use penstock_engine::report::Path;

/// One chunk to store.
pub struct EncodedChunk<'a> {
    /// Index in the array of the chunk's first element.
    pub first: Vec<u64>,
    /// Filter mask: bit `i` is set if filter `i` was skipped.
    pub mask: u32,
    /// The bytes to store.
    pub bytes: &'a [u8],
}

/// The destination of encoded chunks.
pub trait ChunkSink: Send + Sync {
    /// Begins a submitter step; dropping the returned value ends it.
    fn step(&self) -> Box<dyn ChunkStep + '_>;

    /// Returns whether this thread can complete the write now. If not, the step becomes due again.
    fn may_finish(&self) -> bool {
        true
    }

    /// Completes the write after all chunks are written.
    fn finish(&self) -> Result<()>;
}

/// A submitter step that writes some chunks.
pub trait ChunkStep {
    /// Writes a chunk. Chunks come in the order of the plan.
    fn write(&mut self, chunk: EncodedChunk<'_>) -> Result<()>;
}

/// The end of a write of contiguous blocks, which workers have written to the file themselves.
pub trait BlockSink: Send + Sync {
    /// Returns whether this thread can complete the write now. If not, the step becomes due again.
    fn may_finish(&self) -> bool {
        true
    }

    /// Completes the write after all blocks are written.
    fn finish(&self) -> Result<()>;

    /// Called last, whether or not the write succeeded.
    fn end(&self);
}

/// The destination of elements that only the format's library can write.
pub trait DenseSink: Send + Sync {
    /// Returns whether this thread can write the elements now. If not, the step becomes due again.
    fn may_finish(&self) -> bool {
        true
    }

    /// Writes all elements, which are contiguous in `bytes`.
    fn write(&self, bytes: &[u8]) -> Result<()>;

    /// Called last, whether or not the write succeeded.
    fn end(&self);

    /// Returns the path that reports name for these bytes.
    fn path(&self) -> Path;
}

/// The destination of a write.
pub enum Sink {
    /// A chunked array, whose chunks workers encode.
    Chunks(Box<dyn ChunkSink>),
    /// A contiguous array, whose blocks workers write.
    Blocks(Box<dyn BlockSink>),
    /// All elements, gathered in host memory; the number is their size in bytes.
    Dense(Box<dyn DenseSink>, u64),
    /// No destination: each element is written where it is stored, without filters, and no other
    /// byte is.
    InPlace,
}

impl Sink {
    /// Ends a write that is not submitted. Nothing was written that the sink of blocks would have
    /// to conclude.
    pub(super) fn end(&self) {
        if let Sink::Dense(sink, _) = self {
            sink.end();
        }
    }
}
