//! Execution of plans by the engine's workers: in a read they read, decode, convert and place
//! stored bytes; in a write they gather, convert and encode elements and hand them to a sink.

mod at_once;
mod bound;
mod buffer;
mod device;
mod elements;
mod encoded;
mod memory;
mod plain;
mod read;
mod sink;
mod submit;
mod transfer;
mod write;

pub use at_once::{SmallRead, SmallReadOrder};
pub use bound::{BoundPlan, InMemory, OnDemand, PlanFile};
pub use buffer::zeroed;
pub use device::placing::prepare;
pub use encoded::{Collected, Collector, EncodedChunks};
pub use plain::extents;
pub use sink::{BlockSink, ChunkSink, ChunkStep, DenseSink, EncodedChunk, Sink};
pub use submit::{AtEnd, Beforehand, PreparedTransfer, SubmitOptions, TransferKind, submit};
pub use transfer::ArrayTransfer;
