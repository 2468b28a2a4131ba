//! Plans carried out: stored bytes are read, decoded, converted and placed by the engine's workers, or
//! gathered, converted, encoded and handed to a sink.

mod bound;
mod buffer;
mod device;
mod elements;
mod memory;
mod plain;
mod read;
mod sink;
mod submit;
mod write;

pub use bound::{BoundPlan, Given};
pub use plain::extents;
pub use sink::{BlockSink, ChunkSink, ChunkStep, DenseSink, EncodedChunk, Sink};
pub use submit::{AtEnd, Beforehand, PreparedTransfer, SubmitOptions, TransferKind, submit};
